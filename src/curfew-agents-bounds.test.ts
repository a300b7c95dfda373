/** Agents at their limits: arguments that cannot be, values that cannot be kept, and very many steps. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { REVOKED } from './core/fixtures/revoked.ts'
import type { AgentContext, StepHandle } from './curfew.ts'
import { agent, CurfewError, RunFailed, TaskFailed, task } from './curfew.ts'

const quick = task({ name: 'quick', run: (n: unknown) => n })
const cycle: Record<string, unknown> = {}
cycle.self = cycle

/** Every one of them is wrong in itself, and says so with this code. */
const wrong: [code: string, says: RegExp, call: (ctx: AgentContext) => unknown][] = [
  ['invalid_argument', /any: the list is empty/, (ctx) => ctx.any([])],
  ['invalid_argument', /race: the list is empty/, (ctx) => ctx.race([], { timeout: '1s' })],
  ['invalid_argument', /all: number 0 is not a handle/, (ctx) => ctx.all([Promise.resolve(1) as never])],
  ['invalid_argument', /allSettled: number 0 is not a handle/, (ctx) => ctx.allSettled([null as never])],
  ['invalid_argument', /all takes a list of handles/, (ctx) => ctx.all(new Set() as never)],
  ['invalid_argument', /cancel: number 0 is not a handle/, (ctx) => ctx.cancel({} as never)],
  ['invalid_duration', /all: timeout: '-1'/, (ctx) => ctx.all([], { timeout: -1 })],
  ['invalid_duration', /sleep: '-5'/, (ctx) => ctx.sleep(-5)],
  ['invalid_duration', /sleep: '5 apples'/, (ctx) => ctx.sleep('5 apples')],
  ['invalid_duration', /the longest is 400 days/, (ctx) => ctx.sleep('401d')],
  ['invalid_option', /sleepUntil: not a time/, (ctx) => ctx.sleepUntil(new Date('no date'))],
  ['invalid_name', /waitForSignal: name/, (ctx) => ctx.waitForSignal('')],
  ['invalid_duration', /waitForSignal: timeout: '0'/, (ctx) => ctx.waitForSignal('a', { timeout: 0 })],
  ['invalid_option', /all: 'timeuot' is not an option/, (ctx) => ctx.all([], { timeuot: '1s' } as never)],
  ['invalid_option', /waitForSignal: 'timeuot'/, (ctx) => ctx.waitForSignal('a', { timeuot: '1s' } as never)],
  ['invalid_option', /run x: 'retry'/, (ctx) => ctx.run('x', () => 1, { retry: 1 } as never)],
  ['invalid_name', /run: name/, (ctx) => ctx.run('', () => 1)],
  ['invalid_option', /run x takes a function/, (ctx) => ctx.run('x', 1 as never)],
  ['invalid_option', /run x: retries/, (ctx) => ctx.run('x', () => 1, { retries: -1 })],
  ['invalid_duration', /run x: timeout: '-1'/, (ctx) => ctx.run('x', () => 1, { timeout: -1 })],
  [
    'invalid_option',
    /schedule takes a task/,
    (ctx) => ctx.schedule(agent({ name: 'a', run: () => 1 }) as never),
  ],
  ['invalid_option', /child takes an agent/, (ctx) => ctx.child(quick as never)],
  ['invalid_duration', /timeout: '-1s'/, (ctx) => ctx.schedule(quick, 1, { timeout: '-1s' })],
  ['invalid_duration', /delay: '-1'/, (ctx) => ctx.schedule(quick, 1, { delay: -1 })],
  ['invalid_option', /exclude each other/, (ctx) => ctx.schedule(quick, 1, { delay: 1, startAt: 1 })],
  ['invalid_option', /startAt is not a time/, (ctx) => ctx.schedule(quick, 1, { startAt: Number.NaN })],
  ['invalid_option', /key/, (ctx) => ctx.schedule(quick, 1, { key: 'k' } as never)],
  ['invalid_json', /input of task quick cannot be kept/, (ctx) => ctx.schedule(quick, 1n)],
  ['invalid_json', /input of task quick cannot be kept/, (ctx) => ctx.schedule(quick, cycle)],
  ['invalid_json', /at \.a cannot be kept: NaN/, (ctx) => ctx.schedule(quick, { a: Number.NaN })],
  ['too_big', /input of task quick is \d+ bytes/, (ctx) => ctx.schedule(quick, 'x'.repeat(2 ** 20))],
]

onEachStoreAndResidence('wrong arguments', (test, residents) => {
  test('row 44: a call that is wrong in itself throws at once, typed, and leaves nothing behind', async ({
    world,
  }) => {
    const errors: unknown[] = []
    const tries = agent({
      name: 'tries',
      run: async (_: null, ctx) => {
        const before = ctx.now()
        for (const [i, [, , call]] of wrong.entries()) {
          try {
            call(ctx)
          } catch (error) {
            errors[i] = error
          }
        }
        await ctx.sleep('1s')
        return [await ctx.schedule(quick, 'right'), ctx.now() - before]
      },
    })
    const curfew = await world.open({ tasks: [quick], agents: [tries], residents })
    const handle = await curfew.start(tries, null)
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual(['right', 1_000])
    for (const [i, [code, says, call]] of wrong.entries()) {
      expect(errors[i], String(call)).toBeInstanceOf(CurfewError)
      expect((errors[i] as CurfewError).code, String(call)).toBe(code)
      expect((errors[i] as CurfewError).message).toMatch(says)
    }
    expect((await handle.explain()).journal).toMatchObject({ steps: 4, results: 2 })
    expect((await curfew.list({ parent: handle.id })).tasks).toHaveLength(1)
  })

  test('a handle of another run is not one of this run', async ({ world }) => {
    const lent: StepHandle[] = []
    const lends = agent({
      name: 'lends',
      run: async (_: null, ctx) => {
        lent.push(ctx.sleep('1h'))
        await ctx.waitForSignal('never')
      },
    })
    const borrows = agent({ name: 'borrows', run: async (_: null, ctx) => ctx.all(lent) })
    const curfew = await world.open({ agents: [lends, borrows], residents })
    await curfew.start(lends, null)
    await world.clock.settle()
    const handle = await curfew.start(borrows, null)
    await world.clock.settle()
    expect(await handle.view()).toMatchObject({ status: 'failed', failure: { code: 'invalid_argument' } })
  })

  test('what is thrown and not caught is how the agent fails', async ({ world }) => {
    const empty = agent({ name: 'empty', run: async (_: null, ctx) => ctx.any([]) })
    const curfew = await world.open({ agents: [empty], residents })
    const handle = await curfew.start(empty, null)
    await world.clock.settle()
    const { failure } = await errorOf(handle.result(), TaskFailed)
    expect(failure).toMatchObject({ code: 'invalid_argument' })
    expect(failure.message).toContain('agent empty: any: the list is empty')
  })

  test('it fails also with what cannot be looked at', async ({ world }) => {
    const odd = agent({
      name: 'odd',
      run: async () => {
        throw REVOKED
      },
    })
    const curfew = await world.open({ agents: [odd], residents })
    const handle = await curfew.start(odd)
    await world.clock.settle()
    expect((await handle.view()).failure?.message).toMatch(/^what was thrown could not be read: /)
  })

  test('an output that cannot be kept fails the agent, one of a run the run', async ({ world }) => {
    let calls = 0
    const returns = agent({
      name: 'returns',
      run: async (what: 'bigint' | 'big' | 'run', ctx) => {
        const kept = ctx.schedule(quick, 'open')
        if (what === 'bigint') return 1n
        if (what === 'big') return 'x'.repeat(2 ** 20)
        const error = await ctx
          .run('cycle', () => ({ call: ++calls, cycle }), { retries: 3 })
          .catch((reason: unknown) => reason)
        await kept
        return error instanceof RunFailed && [error.failure.code, error.failure.retryable]
      },
    })
    const curfew = await world.open({ tasks: [quick], agents: [returns], residents })
    const codes: unknown[] = []
    for (const what of ['bigint', 'big'] as const) {
      const handle = await curfew.start(returns, what)
      await world.clock.settle()
      const { failure } = await errorOf(handle.result(), TaskFailed)
      codes.push(failure.code)
      expect(failure.message).toContain('output of agent returns')
    }
    expect(codes).toEqual(['invalid_json', 'too_big'])
    const handle = await curfew.start(returns, 'run')
    await world.clock.settle()
    expect(await handle.result()).toEqual(['invalid_json', false])
    expect(calls).toBe(1)
  })
})

onEachStore('wrong definitions and starts', (test) => {
  test('they are refused where they stand, and nothing is stored', async ({ world }) => {
    const run = () => 1
    const definitions: [code: string, definition: () => unknown][] = [
      ['invalid_name', () => agent({ name: '', run })],
      ['invalid_option', () => agent({ name: 'a', run: 1 as never })],
      ['invalid_option', () => agent({ name: 'a', input: {} as never, run })],
      ['invalid_option', () => agent({ name: 'a', retries: 3, run } as never)],
      ['invalid_duration', () => agent({ name: 'a', timeout: 0, run })],
      ['invalid_duration', () => agent({ name: 'a', cleanup: -1, run })],
      ['invalid_option', () => agent({ name: 'a', warnAt: 2, run })],
    ]
    for (const [code, definition] of definitions) {
      expect(definition, String(definition)).toThrow(expect.objectContaining({ code }))
    }
    const echo = agent({ name: 'echo', run: (input: unknown) => input })
    const curfew = await world.open({ tasks: [quick], agents: [echo] })
    const starts: [code: string, start: () => Promise<unknown>][] = [
      ['invalid_json', () => curfew.start(echo, 1n)],
      ['too_big', () => curfew.start(echo, 'x'.repeat(2 ** 20))],
      ['invalid_option', () => curfew.start(quick as never)],
      ['invalid_option', () => curfew.start(echo, 1, { queue: 'q' } as never)],
      ['invalid_duration', () => curfew.start(echo, 1, { timeout: Number.NaN })],
      ['invalid_name', () => curfew.start(echo, 1, { key: '' })],
      ['invalid_option', () => curfew.schedule(echo as never, 1)],
    ]
    for (const [code, start] of starts) {
      expect(await errorOf(start(), CurfewError), String(start)).toMatchObject({ code })
    }
    expect((await curfew.list()).tasks).toEqual([])
  })
})

onEachStore(
  'very many steps',
  (test) => {
    for (const residents of [{}, { count: 0 }]) {
      test(`10,000 steps, ${residents.count === 0 ? 'replayed at every wait' : 'resident'}`, async ({
        world,
      }) => {
        const long = agent({
          name: 'long',
          run: async (_: null, ctx) => {
            let sum = 0
            for (let round = 0; round < 10; round++) {
              for (let i = 0; i < 948; i++) sum += ctx.now() % 2
              const handles = Array.from({ length: 50 }, (_, n) => ctx.schedule(quick, n))
              for (const n of await ctx.all(handles)) sum += n as number
              await ctx.sleep('1m')
              ctx.random()
            }
            return sum
          },
        })
        const curfew = await world.open({ tasks: [quick], agents: [long], concurrency: 100, residents })
        const handle = await curfew.start(long, null)
        await world.clock.advance('1h')
        expect(await handle.result()).toBe(10 * 1_225)
        expect((await handle.explain()).journal).toMatchObject({ steps: 10_000, open: 0 })
        expect((await curfew.list({ parent: handle.id, limit: 1_000 })).tasks).toHaveLength(500)
      })
    }

    test('one journal holds no more than 50,000 steps: the agent fails and says what to do', async ({
      world,
    }) => {
      const endless = agent({
        name: 'endless',
        run: async (wait: 'at the end' | 'at each' | 'never', ctx) => {
          const open = ctx.schedule(quick, 'open')
          for (let i = 0; i < 50_001; i++) {
            ctx.now()
            if (wait === 'at each' && i % 10_000 === 0) await ctx.sleep('1s')
          }
          if (wait === 'at the end') await ctx.sleep('1s')
          return open.id
        },
      })
      const curfew = await world.open({ tasks: [quick], agents: [endless] })
      const handles = [
        await curfew.start(endless, 'at the end'),
        await curfew.start(endless, 'at each'),
        await curfew.start(endless, 'never'),
      ]
      await world.clock.advance('1m')
      for (const handle of handles) {
        const { failure } = await errorOf(handle.result(), TaskFailed)
        expect(failure).toMatchObject({ code: 'too_many_steps', retryable: false })
        expect(failure.message).toMatch(
          /^agent endless came to step 50000; a journal holds no more\n.*child agents/,
        )
        expect((await handle.explain()).journal).toMatchObject({ steps: 50_000, open: 0 })
      }
    })
  },
  ['memory'],
)
