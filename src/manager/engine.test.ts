// An engine and a worker with the port between them laid open: what crosses it, and what a manager answers to
// reports that come too late. The worker here is the real one, or one that the test plays by hand.

import { expect } from 'vitest'
import type { World } from '../../scripts/acceptance/world.ts'
import { onEachStore } from '../../scripts/acceptance/world.ts'
import { Client } from '../client/client.ts'
import { IdSource } from '../core/id.ts'
import type { StopReason } from '../core/states.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import { task } from '../definitions/task.ts'
import type { Assignment, DownMessage, ManagerPort, Report, WorkerSession } from '../wire/worker-port.ts'
import { Worker } from '../worker/worker.ts'
import type { Engine, EngineWorker } from './engine.ts'
import { openEngine } from './engine.ts'

const NOBODY_ASKS = { held: () => ({ attempts: [], turns: [] }), stopAll: () => undefined }

async function startEngine(world: World, worker: (engine: Engine) => EngineWorker): Promise<Engine> {
  const randomness = new SystemRandomness()
  const engine = await openEngine({
    store: world.store,
    queues: [],
    taskQueues: [],
    clock: world.clock,
    randomness,
    logger: world.logger,
    ids: new IdSource(randomness),
    endLeftovers: async () => undefined,
  })
  await engine.start(worker(engine), () => undefined)
  return engine
}

/** The real worker, attached through `wrap`. */
function realWorker(world: World, tasks: TaskDefinition[], wrap: (port: ManagerPort) => ManagerPort) {
  return (engine: Engine): EngineWorker => {
    const { clock, logger } = world
    const options = {
      workerId: engine.nodeId,
      tasks,
      queues: null,
      concurrency: 10,
      agents: [],
      registry: {},
      turns: 1,
      residents: { count: 0, bytes: 0 },
      randomness: new SystemRandomness(),
      ids: new IdSource(new SystemRandomness()),
      clock,
      logger,
      processes: null,
    }
    const worker = new Worker(options)
    const attach = worker.attach.bind(worker)
    worker.attach = (port) => attach(wrap(port))
    return worker
  }
}

/** A worker played by hand: it takes what it is given, and says only what the test lets it say. */
class HandWorker implements EngineWorker {
  readonly idle = true
  readonly given: Assignment[] = []
  readonly stops: StopReason[] = []
  readonly #names: string[]
  #session: WorkerSession | null = null

  constructor(names: string[]) {
    this.#names = names
  }

  attach(port: ManagerPort): void {
    this.#session = port.attach(
      { workerId: 'hand', names: this.#names, queues: null, concurrency: 5, agents: [], turns: 0 },
      (message) => {
        if (message.type === 'start') this.given.push(...message.assignments)
        if (message.type === 'stop') this.stops.push(message.reason)
      },
      NOBODY_ASKS,
    )
  }

  async say(assignment: Assignment | undefined, report: object) {
    const { taskId, token } = assignment as Assignment
    const answers = await this.#session?.report([{ taskId, token, ...report } as Report])
    return answers?.[0]
  }

  stopAll(): void {
    this.stops.push({ code: 'closing', message: 'closing' })
  }

  async reported(): Promise<void> {}
}

onEachStore('the port between worker and manager', (test) => {
  test('every message could cross a wire: nothing is lost as JSON', async ({ world }) => {
    const { clock } = world
    const crossed = new Set<string>()
    const cross = <T>(message: T, kind: string): T => {
      const copy = JSON.parse(JSON.stringify(message)) as T
      // Strict: an `undefined` or a class instance would not arrive as it was sent.
      expect(copy).toStrictEqual(message)
      crossed.add(kind)
      return copy
    }
    const wire = (port: ManagerPort): ManagerPort => ({
      attach: (hello, down, worker) => {
        const session = port.attach(
          cross(hello, 'hello'),
          (message: DownMessage) => down(cross(message, `down ${message.type}`)),
          worker,
        )
        return {
          ...session,
          report: async (reports) => {
            const answers = await session.report(reports.map((report) => cross(report, `up ${report.type}`)))
            return answers.map((answer) => cross(answer, `answer ${answer.type}`))
          },
          detach: () => session.detach(),
        }
      },
    })
    const work = task({
      name: 'work',
      retries: 1,
      grace: '1s',
      attemptTimeout: '1m',
      backoff: { initial: '1s', jitter: 0 },
      run: async (what: string, { attempt, signal, progress, extend, previousDetails }) => {
        if (what === 'fails once' && attempt === 1) throw new Error('once', { cause: new Error('why') })
        if (what === 'fails once') return 'at last'
        if (what === 'is deaf') return new Promise(() => undefined)
        progress({ completed: 1, total: 2 }, { page: 1, note: undefined })
        await extend({ progress: { completed: 1 } })
        await clock.sleep(what === 'hangs' ? '1h' : '2s', signal)
        return { what, previousDetails: previousDetails ?? null, odd: '\u0000 \ud800 "quotes" ☃' }
      },
    })
    const engine = await startEngine(world, realWorker(world, [work], wire))
    const client = new Client(engine.service)
    const handles = await client.scheduleMany(work, ['fails once', 'runs', 'hangs', 'is deaf'])
    await clock.advance('5s')
    await handles[2]?.cancel()
    await handles[3]?.extend('10s')
    await handles[3]?.cancel()
    await clock.advance('10s')
    expect(await handles[0]?.result()).toBe('at last')
    expect(await handles[1]?.result()).toEqual({
      what: 'runs',
      previousDetails: null,
      odd: '\u0000 \ud800 "quotes" ☃',
    })
    expect(await handles[2]?.view()).toMatchObject({
      status: 'cancelled',
      receipt: 'aborted',
      details: { page: 1 },
    })
    expect(await handles[3]?.view()).toMatchObject({ status: 'cancelled', receipt: 'abandoned' })
    const [first] = (await handles[0]!.explain()).attempts
    expect(first?.failure).toMatchObject({ message: 'once', cause: { message: 'why' } })
    expect([...crossed].toSorted()).toEqual(
      expect.arrayContaining([
        'answer accepted',
        'answer extension',
        'down limits',
        'down start',
        'down stop',
        'hello',
        'up beat',
        'up completed',
        'up extend',
        'up failed',
        'up stopped',
      ]),
    )
    await engine.close()
  })

  test('row 19: what comes after the timeout is answered, kept as late, and changes nothing', async ({
    world,
  }) => {
    const hand = new HandWorker(['work'])
    const engine = await startEngine(world, () => hand)
    const client = new Client(engine.service)
    const work = task({ name: 'work', timeout: '5s', grace: '1s', retries: 3, run: () => 1 })
    const handle = await client.schedule(work, null)
    await world.clock.advance('5s')
    const [assignment] = hand.given
    expect(hand.stops).toMatchObject([{ code: 'timed_out', kind: 'total' }])
    // A heartbeat is stale now: whoever sends it has to stop.
    const beat = { type: 'beat', progress: { fraction: 0.9 }, details: '"late"', moved: true }
    expect(await hand.say(assignment, beat)).toMatchObject({ type: 'stale', reason: { code: 'stale' } })
    const extend = { type: 'extend', requestId: 'r', progress: {} }
    expect(await hand.say(assignment, extend)).toMatchObject({ type: 'stale' })
    // Row 12: nobody answers, and the outcome is told at most grace and two seconds later.
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: false })
    await world.clock.advance('3s')
    expect(await handle.view()).toMatchObject({ settled: true, receipt: 'unreachable' })
    // Row 20: a failure does not make it pending again, a result does not complete it.
    await hand.say(assignment, { type: 'failed', failure: { code: 'x', message: 'x', retryable: true } })
    await hand.say(assignment, { type: 'completed', output: '"late"' })
    await world.clock.advance('1h')
    expect(await handle.view()).toMatchObject({
      status: 'timed_out',
      output: null,
      failure: null,
      attempts: 1,
    })
    expect(hand.given).toHaveLength(1)
    const late = (await handle.events()).filter(({ type }) => type === 'late_result')
    expect(late).toMatchObject([{ failure: { code: 'x' } }, { output: '"late"' }])
    await engine.close()
  })

  test('row 21: what the first attempt says during the second is fenced off', async ({ world }) => {
    const hand = new HandWorker(['work'])
    const engine = await startEngine(world, () => hand)
    const client = new Client(engine.service)
    const work = task({
      name: 'work',
      attemptTimeout: '5s',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: () => 1,
    })
    const handle = await client.schedule(work, null)
    await world.clock.advance('5s')
    const stopped = { type: 'stopped', reason: hand.stops[0], receipt: 'aborted', late: null }
    expect(await hand.say(hand.given[0], stopped)).toEqual({ type: 'accepted' })
    await world.clock.advance('2s')
    const [first, second] = hand.given
    expect([first?.attempt, second?.attempt]).toEqual([1, 2])
    expect(second?.token).not.toBe(first?.token)
    for (const report of [
      { type: 'completed', output: '"from the first"' },
      { type: 'failed', failure: { code: 'x', message: 'from the first', retryable: false } },
      { type: 'beat', progress: { fraction: 0.9 }, details: '"from the first"', moved: true },
      { type: 'extend', requestId: 'r', progress: {} },
      stopped,
    ]) {
      expect(await hand.say(first, report), report.type).toMatchObject({
        type: 'stale',
        reason: { code: 'stale' },
      })
    }
    expect(await handle.view()).toMatchObject({
      status: 'running',
      attempts: 2,
      progress: null,
      details: null,
    })
    expect(await hand.say(second, { type: 'completed', output: '"from the second"' })).toEqual({
      type: 'accepted',
    })
    expect(await handle.result()).toBe('from the second')
    // And twice is once.
    expect(await hand.say(second, { type: 'completed', output: '"again"' })).toMatchObject({ type: 'stale' })
    expect(await handle.result()).toBe('from the second')
    await engine.close()
  })

  test('a claim carries what is left, and never more than that', async ({ world }) => {
    const hand = new HandWorker(['work'])
    const engine = await startEngine(world, () => hand)
    const client = new Client(engine.service)
    const work = task({
      name: 'work',
      timeout: '1m',
      attemptTimeout: '50s',
      grace: '2s',
      softStop: '3s',
      run: () => 1,
    })
    const start = world.now
    await client.schedule(work, { n: 1 })
    await world.clock.settle()
    expect(hand.given).toMatchObject([
      {
        attempt: 1,
        input: '{"n":1}',
        details: null,
        deadlineAt: start + 50_000,
        attemptMs: 50_000,
        totalMs: 60_000,
        softStopMs: 3_000,
        graceMs: 2_000,
      },
    ])
    await engine.close()
  })

  test('a stale answer stops the handler at once', async ({ world }) => {
    const { clock } = world
    const reasons: StopReason[] = []
    // A manager that has forgotten the attempt, as after a takeover: it calls every beat stale.
    const forgetful = (port: ManagerPort): ManagerPort => ({
      attach: (hello, down, worker) => {
        const session = port.attach(hello, down, worker)
        return {
          ...session,
          detach: () => session.detach(),
          report: (reports) =>
            session.report(reports.map((one) => (one.type === 'beat' ? { ...one, token: 'another' } : one))),
        }
      },
    })
    const work = task({
      name: 'work',
      run: async (_: unknown, { signal, heartbeat }) => {
        await clock.sleep('1s')
        heartbeat()
        await clock.sleep('1h', signal).catch((reason: StopReason) => reasons.push(reason))
      },
    })
    const engine = await startEngine(world, realWorker(world, [work], forgetful))
    await new Client(engine.service).schedule(work, null)
    await clock.advance('2s')
    // It is repeated: nobody had decided against it.
    expect(reasons[0]).toMatchObject({ code: 'stale' })
    await engine.close()
  })

  test('row 23: the worker stops by its own timer when it hears nothing from the manager', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    let stoppedAt = 0
    let reachable = true
    // The line is dead from the third second on: nothing comes down, nothing is answered.
    const cut = (port: ManagerPort): ManagerPort => ({
      attach: (hello, down, worker) => {
        const session = port.attach(hello, (message) => reachable && down(message), worker)
        return {
          ...session,
          detach: () => session.detach(),
          report: (reports) => (reachable ? session.report(reports) : new Promise(() => undefined)),
        }
      },
    })
    const work = task({
      name: 'work',
      timeout: '10s',
      run: async (_: unknown, { signal }) => {
        await clock.sleep('1h', signal).catch((reason: StopReason) => {
          stoppedAt = world.now - start
          expect(reason).toMatchObject({ code: 'timed_out', kind: 'total' })
        })
      },
    })
    const engine = await startEngine(world, realWorker(world, [work], cut))
    const handle = await new Client(engine.service).schedule(work, null)
    await clock.advance('3s')
    reachable = false
    await clock.advance('1m')
    // Never early; and soon after.
    expect(stoppedAt).toBeGreaterThanOrEqual(10_000)
    expect(stoppedAt).toBeLessThanOrEqual(11_500)
    expect(await handle.view()).toMatchObject({
      status: 'timed_out',
      endedAt: start + 10_000,
      receipt: 'unreachable',
    })
    await engine.close()
  })
})
