import { describe, expect, test, vi } from 'vitest'
import { SystemRandomness } from '../core/system-clock.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { Funnel } from './funnel.ts'

interface Asked {
  id: string
  hot?: boolean
}

/** Transactions that end when they are told to. */
function setUp(options: { lanes?: number; committed?: () => void } = {}) {
  const clock = new VirtualClock()
  const errors: unknown[] = []
  const open: { asked: string[]; end(): void }[] = []
  const funnel = new Funnel<Asked, string, null>({
    ...{ clock, randomness: new SystemRandomness(), lanes: options.lanes ?? 3, batchRows: 500 },
    logger: { debug() {}, info() {}, warn() {}, error: (fields: object) => errors.push(fields) },
    touching: { idOf: ({ id }) => id, isHot: ({ hot = false }) => hot },
    commit: (commands) => {
      const asked = commands.map(({ id }) => id)
      return new Promise((resolve) => {
        const end = () => resolve({ answers: asked, committed: null })
        open.push({ asked, end })
      })
    },
    committed: options.committed ?? (() => undefined),
    ...{ wanted: () => 0, failed: () => undefined },
  })
  /** What the transactions are about, as they were opened. */
  const opened = async () => {
    await new Promise((resolve) => setImmediate(resolve))
    return open.map(({ asked }) => asked.join(' '))
  }
  /** So many that they are worth a transaction of their own. */
  const submitMany = () => {
    for (let i = 0; i < 64; i++) void funnel.submit({ id: `many-${i}`, hot: true })
  }
  return { clock, errors, funnel, open, opened, submitMany }
}

test('whoever asked is answered, also where nobody understands what was committed', async () => {
  const committed = () => {
    throw new TypeError('nobody understands it')
  }
  const { funnel, errors, open, opened } = setUp({ lanes: 1, committed })
  const first = Promise.all([funnel.submit({ id: '1' }), funnel.submit({ id: '2' })])
  await opened()
  open[0]?.end()
  expect(await first).toEqual(['1', '2'])
  const next = funnel.submit({ id: '3' })
  await vi.waitUntil(() => open.length === 2)
  open[1]?.end()
  expect(await next).toBe('3')
  expect(errors).toEqual([
    { error: 'TypeError: nobody understands it' },
    { error: 'TypeError: nobody understands it' },
  ])
})

test('a few wait for the transaction before them, but not for long', async () => {
  const { funnel, clock, opened, open } = setUp()
  const first = funnel.submit({ id: 'large' })
  await opened()
  const deadline = funnel.submit({ id: 'deadline' }, { patient: true })
  await clock.advance(49)
  expect(await opened()).toEqual(['large'])
  await clock.advance(1)
  expect(await opened()).toEqual(['large', 'deadline'])
  open[1]?.end()
  expect(await deadline).toBe('deadline')
  open[0]?.end()
  expect(await first).toBe('large')
})

describe('of one task only one transaction decides at a time', () => {
  test('what is not hot waits for all that is about the same', async () => {
    const { funnel, clock, opened, open, submitMany } = setUp()
    const report = funnel.submit({ id: 'a', hot: true })
    await opened()
    const cancels = Promise.all([funnel.submit({ id: 'b' }), funnel.submit({ id: 'a' })])
    submitMany()
    const [first, second] = await opened()
    expect(first).toBe('a')
    expect(second).toMatch(/^b many-0 .* many-63$/)
    open[0]?.end()
    await report
    await clock.advance(50)
    expect((await opened())[2]).toBe('a')
    open[1]?.end()
    open[2]?.end()
    expect(await cancels).toEqual(['b', 'a'])
  })

  test('what is hot waits for what is not, and not for its own kind', async () => {
    const { funnel, clock, opened, open, submitMany } = setUp()
    for (const one of [{ id: 'a' }, { id: 'b', hot: true }]) void funnel.submit(one)
    await opened()
    for (const id of ['a', 'b']) void funnel.submit({ id, hot: true })
    submitMany()
    expect((await opened())[1]).toMatch(/^b many-0 /)
    open[0]?.end()
    await opened()
    await clock.advance(50)
    expect((await opened())[2]).toBe('a')
  })

  test('what comes behind something that waits waits too', async () => {
    const { funnel, clock, opened, open, submitMany } = setUp()
    void funnel.submit({ id: 'a', hot: true })
    await opened()
    void funnel.submit({ id: 'a' })
    void funnel.submit({ id: 'a', hot: true })
    submitMany()
    expect((await opened())[1]).toMatch(/^many-0 .* many-63$/)
    open[0]?.end()
    await opened()
    await clock.advance(50)
    expect((await opened())[2]).toBe('a a')
  })
})
