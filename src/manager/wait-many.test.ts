import { expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { onAbort } from '../core/on-abort.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import type { Settled, TaskView } from '../wire/task-service.ts'
import { jobService } from './job-service.ts'
import type { Ends, Waitable } from './wait-many.ts'

type Waits = Map<string, PromiseWithResolvers<Settled | null>>

/** Over a service whose work ends when a test says so. */
function setUp() {
  const waits: Waits = new Map()
  const ended = new Map<string, Settled>()
  const asked: string[] = []
  const clock = new VirtualClock()
  const settled: Waitable['settled'] = async (id, _, { signal, onUnsettled }) => {
    asked.push(id)
    const known = ended.get(id)
    if (known) return known
    onUnsettled()
    const wait = Promise.withResolvers<Settled | null>()
    waits.set(id, wait)
    onAbort(signal, () => {
      waits.delete(id)
      wait.resolve(null)
    })
    return wait.promise
  }
  const service = jobService({ settled } as never, clock)
  const end = (id: string, output = '1') => {
    ended.set(id, { status: 'completed', output })
    waits.get(id)?.resolve({ status: 'completed', output })
  }
  const ask = (ids: string[], signal = new AbortController().signal) => {
    const answers = service.waitMany({ ids } as never, { signal } as never)
    const iterator = answers[Symbol.asyncIterator]()
    const next = async () => {
      const { value, done } = await iterator.next()
      if (done) return 'over'
      expect(value.looked).toBe(true)
      return (value.ends ?? []).map(({ id = '', how }) => `${id} ${how?.case}`)
    }
    return { next, iterator }
  }
  return { waits, asked, clock, end, ask }
}

test('of each it tells once, together what ended together, and then it is over', async () => {
  const { waits, end, ask } = setUp()
  const { next } = ask(['t_1', 't_2', 't_3', 't_1'])
  expect(await next()).toEqual([])
  const first = next()
  expect([...waits.keys()]).toEqual(['t_1', 't_2', 't_3'])
  end('t_2')
  end('t_3')
  expect(await first).toEqual(['t_2 output', 't_3 output'])
  const second = next()
  waits.get('t_1')?.reject(new CurfewError('not_found', 'there is no t_1'))
  expect(await second).toEqual(['t_1 error'])
  expect(await next()).toBe('over')
})

test('what had settled before is told with the first message, and not waited for', async () => {
  const { waits, end, ask } = setUp()
  for (const id of ['t_2', 't_3']) end(id, `"${'x'.repeat(700_000)}"`)
  const { iterator } = ask(['t_1', 't_2', 't_3'])
  const next = async () => {
    const { ends, looked } = (await iterator.next()).value as Ends
    return [ends.map(({ id }) => id), looked]
  }
  expect([await next(), await next()]).toEqual([
    [['t_2'], false],
    [['t_3'], true],
  ])
  expect([...waits.keys()]).toEqual(['t_1'])
})

test('large outputs come in several messages', async () => {
  const { end, ask } = setUp()
  const { next } = ask(['t_1', 't_2', 't_3'])
  await next()
  const first = next()
  for (const id of ['t_1', 't_2', 't_3']) end(id, `"${'x'.repeat(700_000)}"`)
  expect([await first, await next(), await next(), await next()]).toEqual([
    ['t_1 output'],
    ['t_2 output'],
    ['t_3 output'],
    'over',
  ])
})

test('what ends while nobody reads is kept up to some megabytes, and the rest is asked for again', async () => {
  const { asked, end, ask } = setUp()
  const ids = Array.from({ length: 100 }, (_, i) => `t_${i}`)
  const { next } = ask(ids)
  await next()
  const first = next()
  expect(asked).toEqual(ids)
  const large = `"${'x'.repeat(1_000_000)}"`
  for (const id of ids) end(id, large)
  const told = [await first]
  expect(asked).toHaveLength(100)
  for (let some = await next(); some !== 'over'; some = await next()) told.push(some)
  expect(new Set(told.flat())).toEqual(new Set(ids.map((id) => `${id} output`)))
  expect(told.flat()).toHaveLength(100)
  // Those that were kept are not among them, and nothing is read in vain.
  expect(asked.slice(100)).toEqual(ids.slice(17))
})

test('failures with long details come in several messages too', async () => {
  const { waits, ask } = setUp()
  const ids = Array.from({ length: 50 }, (_, i) => `t_${i}`)
  const { next } = ask(ids)
  await next()
  const first = next()
  const failed = { status: 'not_completed', task: { details: 'x'.repeat(60_000) } as TaskView } as const
  for (const id of ids) waits.get(id)?.resolve(failed)
  const told = [await first]
  for (let some = await next(); some !== 'over'; some = await next()) told.push(some)
  expect(told.map((some) => some.length)).toEqual([17, 17, 16])
})

test('while nothing ends it says every five seconds that it lives', async () => {
  const { clock, end, ask } = setUp()
  const { next } = ask(['t_1'])
  await next()
  for (const _ of [1, 2, 3]) {
    const quiet = next()
    await clock.advance(5_000)
    expect(await quiet).toEqual([])
  }
  const last = next()
  end('t_1')
  expect(await last).toEqual(['t_1 output'])
})

test('a manager that closes ends it with the reason, and waits for none of them any more', async () => {
  const { waits, ask } = setUp()
  const { next } = ask(['t_1', 't_2'])
  await next()
  const failing = next()
  waits.get('t_1')?.reject(new CurfewError('closed', 'this engine was closed'))
  await expect(failing).rejects.toMatchObject({ code: 'closed' })
  expect(waits.size).toBe(0)
})

test('whoever goes leaves no wait behind, whether they say so or not', async () => {
  const { waits, ask } = setUp()
  const gone = new AbortController()
  const cut = ask(['t_1', 't_2'], gone.signal)
  await cut.next()
  const quiet = cut.next()
  expect(waits.size).toBe(2)
  gone.abort()
  expect(await quiet).toBe('over')
  expect(waits.size).toBe(0)
})

test('too many, or what is no id, is refused before anything is waited for', async () => {
  const { waits, ask } = setUp()
  const many = Array.from({ length: 5_001 }, (_, i) => `t_${i}`)
  await expect(ask(many).next()).rejects.toMatchObject({ code: 'too_big' })
  await expect(ask(['t_1', '']).next()).rejects.toMatchObject({ code: 'invalid_name' })
  expect(waits.size).toBe(0)
})

test('over all callers only so many are waited for; whoever comes then is to try again, and may when others have gone', async () => {
  const { ask, end } = setUp()
  const leaving = new AbortController()
  const ids = (caller: number) => Array.from({ length: 5_000 }, (_, n) => `t_${caller}_${n}`)
  const callers = Array.from({ length: 50 }, (_, i) => ask(ids(i), i === 7 ? leaving.signal : undefined))
  for (const { next } of callers) expect(await next()).toEqual([])
  const refusal = await ask(['t_one', 't_more'])
    .next()
    .catch((error: CurfewError) => error)
  expect(refusal).toMatchObject({
    code: 'overloaded',
    message: expect.stringMatching(/^results of 250000 are waited for here already/),
  })
  const gone = callers[7]?.next()
  leaving.abort()
  expect(await gone).toBe('over')
  end('t_more')
  expect(await ask(['t_one', 't_more']).next()).toEqual(['t_more output'])
})
