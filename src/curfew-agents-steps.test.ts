/** The single steps of agents: sleeps, runs, children, cancelled steps, and values that stay the same on replay. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import type { World } from '../scripts/acceptance/world.ts'
import type { CurfewError, StepHandle } from './curfew.ts'
import {
  agent,
  HandlerError,
  RunFailed,
  Stopped,
  TaskCancelled,
  TaskFailed,
  TaskTimedOut,
  task,
  WaitTimedOut,
} from './curfew.ts'

const hangOn = (world: World) =>
  task({ name: 'hang', run: (_: null, { signal }) => world.clock.sleep('1h', signal) })

/** The class and code of what a step ends with. */
const told = (step: StepHandle) =>
  step.then(
    (value) => value,
    (error: CurfewError) => [error.constructor.name, error.code],
  )

onEachStoreAndResidence('steps of agents', (test, residents) => {
  test('sleep and sleepUntil end at their time, and at once when it is over', async ({ world }) => {
    const naps = agent({
      name: 'naps',
      run: async (until: number, ctx) => {
        const times = [ctx.now()]
        const nap = async (step: StepHandle<void>) => {
          await step
          times.push(ctx.now())
        }
        await nap(ctx.sleep('90s'))
        await nap(ctx.sleep(0))
        await nap(ctx.sleepUntil(until))
        await nap(ctx.sleepUntil(new Date(until)))
        await nap(ctx.sleep({ days: 100 }))
        return times.map((time) => time - (times[0] as number))
      },
    })
    const curfew = await world.open({ agents: [naps], residents })
    const handle = await curfew.start(naps, world.now + 120_000)
    await world.clock.advance('99d')
    expect(await handle.status()).toBe('running')
    await world.clock.advance('3d')
    expect(await handle.result()).toEqual([0, 90_000, 90_000, 120_000, 120_000, 120_000 + 100 * 86_400_000])
  })

  test('run: the result is kept and the function is called once', async ({ world }) => {
    let calls = 0
    const runs = agent({
      name: 'runs',
      run: async (_: null, ctx) => {
        const value = await ctx.run('count', ({ attempt }) => ({ calls: ++calls, attempt }))
        const nothing = await ctx.run('nothing', () => undefined)
        const slow = await ctx.run('slow', async () => {
          await world.clock.sleep('3s')
          return ++calls
        })
        await ctx.sleep('1m')
        return { value, nothing, slow }
      },
    })
    const curfew = await world.open({ agents: [runs], residents })
    const handle = await curfew.start(runs, null)
    await world.clock.advance('2m')
    expect(await handle.result()).toEqual({ value: { calls: 1, attempt: 1 }, nothing: null, slow: 2 })
    expect(calls).toBe(2)
  })

  test('run: tried again with backoff while it may be, then RunFailed with the last failure', async ({
    world,
  }) => {
    const calls: string[] = []
    const backoff = { initial: '1s', factor: 2, jitter: 0 }
    const tries = agent({
      name: 'tries',
      run: async (_: null, ctx) => {
        const start = ctx.now()
        const call = (name: string, fail: (attempt: number) => void, retries: number) =>
          told(
            ctx.run(
              name,
              ({ attempt }) => {
                calls.push(`${name} ${attempt} at ${world.now - start}`)
                fail(attempt)
                return `${name} ${attempt}`
              },
              { retries, backoff },
            ),
          )
        const later = await call('later', (attempt) => assertThird(attempt), 2)
        const never = await call('never', () => assertThird(0), 1)
        const final = await call('final', () => fail('no use', false), 5)
        const error = await ctx.run('coded', () => fail('coded')).catch((reason: unknown) => reason)
        await ctx.sleep('1m')
        return { later, never, final, failure: error instanceof RunFailed && error.failure }
      },
    })
    const curfew = await world.open({ agents: [tries], residents })
    const handle = await curfew.start(tries, null)
    await world.clock.advance('2m')
    expect(await handle.result()).toMatchObject({
      later: 'later 3',
      never: ['RunFailed', 'run_failed'],
      final: ['RunFailed', 'run_failed'],
      failure: { code: 'no_paper', message: 'coded', retryable: true },
    })
    expect(calls).toEqual([
      'later 1 at 0',
      'later 2 at 1000',
      'later 3 at 3000',
      'never 1 at 3000',
      'never 2 at 4000',
      'final 1 at 4000',
    ])
  })

  test('run: a limit for each try ends it as WaitTimedOut, and aborts its signal', async ({ world }) => {
    const aborted: unknown[] = []
    const limited = agent({
      name: 'limited',
      run: async (_: null, ctx) => {
        const step = ctx.run(
          'deaf',
          async ({ signal, attempt }) => {
            signal.addEventListener('abort', () =>
              aborted.push([attempt, (signal.reason as CurfewError).code]),
            )
            await world.clock.sleep(attempt === 3 ? '1s' : '1h')
            return attempt
          },
          { timeout: '5s', retries: 2, backoff: { initial: '1s', factor: 1, jitter: 0 } },
        )
        const first = await step
        const error = await ctx
          .run('again', () => world.clock.sleep('1h'), { timeout: '2s' })
          .catch((reason: unknown) => reason)
        await ctx.sleep('1s')
        return { first, timeoutMs: error instanceof WaitTimedOut && error.timeoutMs, at: ctx.now() }
      },
    })
    const curfew = await world.open({ agents: [limited], residents })
    const start = world.now
    const handle = await curfew.start(limited, null)
    await world.clock.advance('30s')
    expect(await handle.result()).toEqual({ first: 3, timeoutMs: 2_000, at: start + 16_000 })
    const timedOut = [1, 2].map((attempt) => [attempt, 'timed_out'])
    expect(aborted.slice(0, 2)).toEqual(timedOut)
  })

  test('a child agent gives its value, or its failure, timeout or cancel as typed errors', async ({
    world,
  }) => {
    const leaf = agent({
      name: 'leaf',
      run: async (how: 'well' | 'badly' | 'slowly', ctx) => {
        if (how === 'badly') throw new HandlerError('no paper', { code: 'no_paper' })
        if (how === 'slowly') await ctx.sleep('1h')
        return how
      },
    })
    const branch = agent({ name: 'branch', run: async (_: null, ctx) => ctx.child(leaf, 'well') })
    const root = agent({
      name: 'root',
      run: async (_: null, ctx) => {
        const slow = ctx.child(leaf, 'slowly', { timeout: '5s' })
        const cancelled = ctx.child(leaf, 'slowly')
        const outcomes: unknown[] = [
          await ctx.child(branch, null),
          await ctx
            .child(leaf, 'badly')
            .catch((error: unknown) => error instanceof TaskFailed && error.failure.code),
          await slow.catch(
            (error: unknown) => error instanceof TaskTimedOut && [error.kind, error.timeoutMs],
          ),
        ]
        ctx.cancel(cancelled)
        const error = await cancelled.catch((reason: unknown) => reason)
        outcomes.push(error instanceof TaskCancelled && error.message.startsWith('agent leaf (g_'))
        return [...outcomes, ctx.now()]
      },
    })
    const curfew = await world.open({ agents: [root, branch, leaf], residents })
    const start = world.now
    const handle = await curfew.start(root, null)
    await world.clock.advance('10s')
    expect(await handle.result()).toEqual(['well', 'no_paper', ['agent', 5_000], true, start + 5_000])
    const children = await curfew.list({ parent: handle.id })
    const statuses = children.tasks.map(({ status }) => status).toSorted()
    expect(statuses).toEqual(['cancelled', 'completed', 'failed', 'timed_out'])
  })

  test('cancel ends whatever it is given, and its end comes through the handle', async ({ world }) => {
    const hang = hangOn(world)
    const child = agent({ name: 'child', run: async (_: null, ctx) => ctx.sleep('1h') })
    const aborted: unknown[] = []
    const cancels = agent({
      name: 'cancels',
      run: async (_: null, ctx) => {
        const running = ctx.schedule(hang, null)
        const childAgent = ctx.child(child, null)
        const run = ctx.run('run', async ({ signal }) => {
          signal.addEventListener('abort', () => aborted.push((signal.reason as CurfewError).code))
          await world.clock.sleep('1h', signal)
        })
        await ctx.sleep('1s')
        const steps: StepHandle[] = [
          running,
          childAgent,
          ctx.schedule(hang, null, { delay: '1h' }),
          ctx.sleep('1h'),
          ctx.waitForSignal('never', { timeout: '1h' }),
          run,
        ]
        const [a, b] = [ctx.sleep('2h'), ctx.schedule(hang, null)]
        for (const step of [...steps, ctx.all([a, b])]) ctx.cancel(step)
        const ends: unknown[] = []
        for (const step of [...steps, a, b]) ends.push(await told(step))
        ctx.cancel(running) // it has ended: nothing happens
        return { ends, at: ctx.now() }
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [cancels, child], residents })
    const start = world.now
    const handle = await curfew.start(cancels, null)
    await world.clock.advance('10s')
    const cancelled = ['TaskCancelled', 'task_cancelled']
    const stopped = ['Stopped', 'cancelled']
    const ran = ['RunFailed', 'run_failed']
    expect(await handle.result()).toEqual({
      ends: [cancelled, cancelled, cancelled, stopped, stopped, ran, stopped, cancelled],
      at: start + 1_000,
    })
    expect(aborted).toEqual(['cancelled'])
    const { tasks } = await curfew.list({ parent: handle.id, kind: 'task' })
    expect(tasks.toReversed()).toMatchObject([
      { status: 'cancelled', attempts: 1, receipt: 'aborted' },
      { status: 'cancelled', attempts: 0, receipt: null },
      { status: 'cancelled', attempts: 0, receipt: null },
    ])
  })

  test('what nobody awaits harms nobody, however it ends', async ({ world }) => {
    const bad = task({ name: 'bad', run: () => fail('nobody hears it') })
    const child = agent({ name: 'child', run: () => fail('nobody hears it either') })
    const careless = agent({
      name: 'careless',
      run: async (_: null, ctx) => {
        const handles = [ctx.schedule(bad), ctx.child(child), ctx.run('bad', () => fail('nor that'))]
        ctx.all(handles)
        ctx.any([ctx.waitForSignal('never', { timeout: '1s' })])
        await ctx.sleep('2s')
        const ends: unknown[] = []
        for (const handle of handles) ends.push(await told(handle), await told(handle))
        return ends
      },
    })
    const curfew = await world.open({ tasks: [bad], agents: [careless, child], residents })
    const handle = await curfew.start(careless, null)
    await world.clock.advance('5s')
    const [failed, ran] = [
      ['TaskFailed', 'task_failed'],
      ['RunFailed', 'run_failed'],
    ]
    expect(await handle.result()).toEqual([failed, failed, failed, failed, ran, ran])
  })

  test('a task starts when it is told to, with the options of the call', async ({ world }) => {
    const at = task({ name: 'at', retries: 1, run: (_: null, { attempt }) => [world.now, attempt] })
    const plans = agent({
      name: 'plans',
      run: async (time: number, ctx) => {
        const calls = [
          ctx.schedule(at, null),
          ctx.schedule(at, null, { delay: '5s' }),
          ctx.schedule(at, null, { startAt: new Date(time) }),
          ctx.schedule(at, null, { queue: 'nobody', queueTimeout: '30s' }),
        ]
        const { completed, timedOut } = await ctx.allSettled(calls)
        return {
          at: completed.map(({ value }) => value),
          kinds: timedOut.map(({ error }) => error.fields.kind),
        }
      },
    })
    const curfew = await world.open({ tasks: [at], agents: [plans], workQueues: ['default'], residents })
    const start = world.now
    const handle = await curfew.start(plans, start + 20_000)
    await world.clock.advance('30s')
    const times = [0, 5_000, 20_000].map((ms) => [start + ms, 1])
    expect(await handle.result()).toEqual({ at: times, kinds: ['queue'] })
  })

  test('now, random, uuid and ids are the same every time the code comes by', async ({ world }) => {
    const hang = hangOn(world)
    const seen: unknown[][] = []
    const draws = agent({
      name: 'draws',
      run: async (_: null, ctx) => {
        const mine: unknown[] = [
          ctx.now(),
          ctx.random(),
          ctx.uuid(),
          ctx.schedule(hang, null).id,
          ctx.agentId,
        ]
        seen.push(mine)
        for (let i = 0; i < 3; i++) await ctx.sleep('1s')
        mine.push(ctx.now(), ctx.random(), ctx.uuid())
        await ctx.sleep('1s')
        return mine
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [draws], residents })
    const start = world.now
    const handle = await curfew.start(draws, null)
    await world.clock.advance('5s')
    const values = await handle.result()
    expect(seen).toHaveLength(residents.count === 0 ? 5 : 1)
    for (const mine of seen) expect(mine.slice(0, 5)).toEqual(values.slice(0, 5))
    const [now, random, uuid, taskId, agentId, later, otherRandom, otherUuid] = values
    expect([now, later, agentId]).toEqual([start, start + 3_000, handle.id])
    expect(random).toBeGreaterThanOrEqual(0)
    expect(random).toBeLessThan(1)
    expect(otherRandom).not.toBe(random)
    expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(otherUuid).not.toBe(uuid)
    expect((await curfew.list({ parent: handle.id })).tasks.map(({ id }) => id)).toEqual([taskId])
  })

  test('log says everything once, with the agent it comes from', async ({ world }) => {
    const quick = task({ name: 'quick', run: (n: number) => n })
    const talks = agent({
      name: 'talks',
      run: async (_: null, ctx) => {
        ctx.log.info({ n: 0 }, 'begins')
        const [a, b] = [ctx.schedule(quick, 1), ctx.sleep('1m')]
        ctx.log.debug({ n: 1 }, 'scheduled')
        await a
        ctx.log.warn({ n: 2 }, 'the first is there')
        await b
        ctx.log.error({ n: 3 }, 'slept')
        await ctx.sleep('1m')
        ctx.log.info({ n: 4 }, 'ends')
      },
    })
    const curfew = await world.open({ tasks: [quick], agents: [talks], residents })
    const { id } = await curfew.start(talks, null)
    await world.clock.advance('5m')
    expect(await curfew.agent(id).status()).toBe('completed')
    const said = world.log.filter(({ fields }) => 'n' in fields)
    expect(said).toEqual(
      ['info begins', 'debug scheduled', 'warn the first is there', 'error slept', 'info ends'].map(
        (line, n) => {
          const [level, ...words] = line.split(' ')
          return { level, message: words.join(' '), fields: { agentId: id, agent: 'talks', n } }
        },
      ),
    )
  })

  test('ctx.signal aborts when the agent has to stop, and tells why', async ({ world }) => {
    const reasons: unknown[] = []
    const listens = agent({
      name: 'listens',
      run: async (_: null, ctx) => {
        ctx.signal.addEventListener('abort', () => reasons.push(ctx.signal.reason))
        await ctx
          .sleep('1m')
          .catch((error: unknown) => reasons.push(ctx.signal.aborted, error === ctx.signal.reason))
        throw ctx.signal.reason
      },
    })
    const curfew = await world.open({ agents: [listens], residents })
    const start = world.now
    const handle = await curfew.start(listens, null, { timeout: '5s' })
    await world.clock.advance('10s')
    const [reason, ...rest] = reasons
    expect(reason).toBeInstanceOf(Stopped)
    expect(reason).toMatchObject({ code: 'timed_out', kind: 'agent', deadlineAt: start + 5_000 })
    expect(rest).toEqual([true, true])
    expect(await handle.status()).toBe('timed_out')
  })
})

function assertThird(attempt: number): void {
  if (attempt !== 3) throw new Error(`not ${attempt}`)
}

function fail(message: string, retryable = true): never {
  throw new HandlerError(message, { code: 'no_paper', retryable })
}
