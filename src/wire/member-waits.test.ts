import { expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { MemberWaits } from './member-waits.ts'
import type { MemberView } from './run-view.ts'
import type { Settled } from './task-service.ts'

const MEMBERS = 1_000

/** A job whose workflows run one after the other; `end` ends the one that runs. */
function chain(clock: VirtualClock) {
  let ended = 0
  const counts = { looks: 0, mostAtOnce: 0, underWay: 0 }
  const waiting = new Map<string, PromiseWithResolvers<Settled | null>>()
  const idOf = (n: number) => `m${n}`
  const member = (n: number): MemberView => ({
    ...{ id: idOf(n), kind: 'task', name: 'x', failure: null, timeoutKind: null, output: null },
    status: n < ended ? 'completed' : n === ended ? 'running' : 'pending',
    runId: n <= ended ? `t_${n}` : null,
    dependsOn: n === 0 ? [] : [idOf(n - 1)],
  })
  const settled = (n: number): Settled => ({ status: 'completed', output: String(n) })
  const service = {
    async members() {
      counts.looks++
      counts.mostAtOnce = Math.max(counts.mostAtOnce, ++counts.underWay)
      const found = Array.from({ length: MEMBERS }, (_, n) => member(n))
      await clock.sleep(1)
      counts.underWay--
      return found
    },
    async settled(id: string, timeoutMs: number | null) {
      const n = id.startsWith('t_') ? Number(id.slice(2)) : Infinity
      if (n < ended) return settled(n)
      const end = waiting.get(id) ?? Promise.withResolvers<Settled | null>()
      waiting.set(id, end)
      return timeoutMs === null
        ? end.promise
        : Promise.race([end.promise, clock.sleep(timeoutMs).then(() => null)])
    },
  }
  const end = () => {
    const n = ended++
    waiting.get(`t_${n}`)?.resolve(settled(n))
  }
  return { service, counts, end }
}

test('those who wait for workflows of one job look at it together', async () => {
  const clock = new VirtualClock()
  const { service, counts, end } = chain(clock)
  const waits = new MemberWaits(clock, service)
  const told: unknown[] = []
  for (let n = 0; n < MEMBERS; n++) {
    void waits.settled('j_1', `m${n}`, null).then((member) => told.push(member?.output))
  }
  await clock.advance(10)
  expect(counts.looks).toBeLessThanOrEqual(2)
  for (let n = 0; n < 50; n++) {
    end()
    await clock.advance(10)
    expect(told).toHaveLength(n + 1)
  }
  expect(told).toEqual(Array.from({ length: 50 }, (_, n) => n))
  expect(counts.mostAtOnce).toBe(1)
  expect(counts.looks).toBeLessThanOrEqual(2 + 50 * 4)
})

test('whoever comes while a look is under way is told of what came after it began', async () => {
  const clock = new VirtualClock()
  const { service, end } = chain(clock)
  const waits = new MemberWaits(clock, service)
  void waits.settled('j_1', 'm1', 5)
  end()
  end()
  const second = waits.settled('j_1', 'm1', 0)
  await clock.advance(1_000)
  expect(await second).toMatchObject({ status: 'completed', output: 1 })
})

test('a look that fails is told to those who waited for it, and the next is made', async () => {
  const clock = new VirtualClock()
  const { service } = chain(clock)
  let fails = true
  const members = async () => {
    if (!fails) return service.members()
    await clock.sleep(1)
    fails = false
    throw new CurfewError('unreachable', 'nobody answers')
  }
  const waits = new MemberWaits(clock, { ...service, members })
  const codes = [0, 1].map(() => waits.settled('j_1', 'm3', 50).catch(({ code }: CurfewError) => code))
  const none = waits.settled('j_1', 'z', null).catch(({ code }: CurfewError) => code)
  await clock.advance(2_000)
  expect(await Promise.all([...codes, none])).toEqual(['unreachable', null, 'not_found'])
})
