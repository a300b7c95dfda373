// Requests that are sent twice, by callers who did not hear the answer: done once, also over a restart.
import { expect } from 'vitest'
import type { World } from '../scripts/acceptance/world.ts'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { Curfew } from './curfew.ts'
import { agent, task } from './curfew.ts'

const listener = agent({
  name: 'listener',
  run: async (count: number, ctx) => {
    const heard: unknown[] = []
    for (let i = 0; i < count; i++) heard.push(await ctx.waitForSignal('word'))
    return heard
  },
})
const patient = task({ name: 'patient', timeout: '1h', run: () => new Promise(() => undefined) })

function open(world: World): Promise<Curfew> {
  return world.open({ tasks: [patient], agents: [listener], listen: '127.0.0.1:0' })
}

async function call(curfew: Curfew, method: string, body: object): Promise<Record<string, unknown>> {
  const response = await fetch(`${curfew.url}/curfew.v1.JobService/${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: response.status, ...((await response.json()) as object) }
}

onEachStore(
  'requests',
  (test) => {
    test('I1: a signal that is sent again with its request id arrives once, also after a crash', async ({
      world,
    }) => {
      const curfew = await open(world)
      const { id } = await curfew.start(listener, 3)
      const say = (to: Curfew, value: string, requestId: string) =>
        call(to, 'Signal', { id, name: 'word', value, requestId })
      await say(curfew, 'a', 'one')
      await Promise.all([1, 2, 3].map(() => say(curfew, 'b', 'two')))
      await world.crash()
      const again = await open(world)
      expect(await say(again, 'a', 'one')).toEqual({ status: 200 })
      await say(again, 'c', '')
      expect((await again.list({ kind: 'agent' })).tasks).toHaveLength(1)
      await world.runFor(30)
      expect(await again.agent(id).result()).toEqual(['a', 'b', 'c'])
    })

    test('I1: an extension that is asked for again is granted once, and answered with the deadline there is', async ({
      world,
    }) => {
      const curfew = await open(world)
      const { id } = await curfew.schedule(patient)
      const before = (await curfew.task(id).view()).deadlineAt as number
      const extend = (of: Curfew, requestId: string) => call(of, 'Extend', { id, byMs: 60_000, requestId })
      expect(await extend(curfew, 'more')).toEqual({ status: 200, deadlineAt: before + 60_000 })
      await world.crash()
      const again = await open(world)
      expect(await extend(again, 'more')).toEqual({ status: 200, deadlineAt: before + 60_000 })
      expect(await extend(again, 'yet more')).toEqual({ status: 200, deadlineAt: before + 120_000 })
    })

    test('I1: asked for again, the deadline is that of the attempt if that ends first', async ({ world }) => {
      const curfew = await open(world)
      const { id } = await curfew.schedule(patient, undefined, { timeout: null, attemptTimeout: '1m' })
      await world.runFor(30)
      const extend = () => call(curfew, 'Extend', { id, byMs: 60_000, requestId: 'more' })
      const first = await extend()
      expect(first).toEqual({ status: 200, deadlineAt: expect.any(Number) })
      expect(await extend()).toEqual(first)
    })

    test('I1: what was refused was not done: the same request may succeed later', async ({ world }) => {
      const curfew = await open(world)
      const gone = await curfew.start(listener, 1)
      await gone.cancel()
      await gone.cancelled()
      const say = (id: string) => call(curfew, 'Signal', { id, name: 'word', value: 'x', requestId: 'again' })
      expect(await say(gone.id)).toMatchObject({ status: 400, code: 'failed_precondition' })
      const other = await curfew.start(listener, 1)
      expect(await say(other.id)).toEqual({ status: 200 })
      expect(await other.result()).toEqual(['x'])
    })

    test('I1: a submit that is sent again with its request id is the same work, also after a crash', async ({
      world,
    }) => {
      const submit = (to: Curfew) => call(to, 'Submit', { task: 'patient', requestId: 'nightly 7' })
      const curfew = await open(world)
      const first = await submit(curfew)
      expect(first).toMatchObject({ status: 200, kind: 'task', existing: false })
      await world.crash()
      const again = await open(world)
      const later = await Promise.all([submit(again), submit(again)])
      expect(later.map(({ id }) => id)).toEqual([first.id, first.id])
      expect((await again.list({ name: 'patient' })).tasks).toHaveLength(1)
    })
  },
  ['file', 'postgres'],
)
