/** Limits of jobs: rows T and E of the scenarios, in one process. What is stuck has a file of its own. */
import { expect } from 'vitest'
import { jobOf, statuses, worksOf } from '../scripts/acceptance/job-works.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import type { JobHandle, TaskStatus } from './curfew.ts'
import { agent, CurfewError, job, TaskTimedOut, task, workflow } from './curfew.ts'

/** Moves on every second; tells when it was stopped. */
function steadyOf(world: World) {
  const stoppedAt: number[] = []
  const steady = task({
    name: 'steady',
    run: async (_: unknown, { signal, progress }) => {
      signal.addEventListener('abort', () => stoppedAt.push(world.now))
      for (let n = 1; ; n++) {
        await world.clock.sleep('1s', signal)
        progress({ completed: n })
      }
    },
  })
  return { steady, stoppedAt }
}

const ends = async (handle: JobHandle) =>
  (await handle.events()).filter(({ type }) => /^job_(completed|failed|timed_out|cancelled)$/.test(type))

onEachStore('limits of jobs', (test, kind) => {
  test('T1: one that goes on past its timeout is timed out once, at its deadline, with all that runs', async ({
    world,
  }) => {
    const { steady, stoppedAt } = steadyOf(world)
    const graph = workflow({
      name: 'graph',
      actions: { steady },
      nodes: [{ id: 'n', actionId: 'steady', input: 'null' }],
    })
    const curfew = await world.open({ tasks: [steady], workflows: [graph] })
    const start = world.now
    const handle = await curfew.submit(
      job({
        name: 'nightly',
        timeout: '90s',
        workflows: [
          { id: 'graph', workflow: graph },
          { id: 'task', task: steady },
          { id: 'next', task: steady, dependsOn: 'task' },
        ],
      }),
    )
    await world.clock.advance(89_999)
    expect(await handle.status()).toBe('running')
    await world.clock.advance(1)
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error).toMatchObject({ kind: 'job', timeoutMs: 90_000, deadlineAt: start + 90_000 })
    expect(error.message).toMatch(/^job nightly \(j_\w+\) timed out after 1m30s/)
    expect(stoppedAt).toEqual([start + 90_000, start + 90_000])
    expect(await handle.view()).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'job',
      endedAt: start + 90_000,
    })
    expect(await ends(handle)).toMatchObject([
      { type: 'job_timed_out', kind: 'job', deadlineAt: start + 90_000, timeoutMs: 90_000, lateMs: 0 },
    ])
    expect(await statuses(handle)).toEqual({ graph: 'cancelled', task: 'cancelled', next: 'cancelled' })
    expect((await handle.workflow('next').view()).failure).toMatchObject({
      code: 'job_ended',
      message: 'the job timed out before it could start',
    })
    await world.clock.advance('1h')
    expect(await ends(handle)).toHaveLength(1)
    expect(await handle.status()).toBe('timed_out')
  })

  test('T5: a result within milliseconds of the deadline: one outcome, the same wherever one looks', async ({
    world,
  }) => {
    const count = kind === 'memory' ? 1_000 : 200
    const close = task({
      name: 'close',
      run: async (ms: number, { signal }) => {
        await world.clock.sleep(ms, signal)
        return ms
      },
    })
    const curfew = await world.open({ tasks: [close], concurrency: count })
    const told: Promise<TaskStatus>[] = []
    const handles: JobHandle[] = []
    for (let n = 0; n < count; n++) {
      // 3 ms before its deadline, to 3 ms after it.
      const work = { id: 'only', task: close, input: 997 + (n % 7) }
      const handle = await curfew.submit(job({ timeout: 1_000, workflows: [work] }))
      handles.push(handle)
      told.push(
        handle.result().then(
          () => 'completed',
          (error: unknown) => (error instanceof TaskTimedOut ? 'timed_out' : 'failed'),
        ),
      )
    }
    await world.clock.advance('1005ms')
    const outcomes = await Promise.all(told)
    const look = () =>
      Promise.all(handles.map((handle) => Promise.all([handle.status(), statuses(handle), ends(handle)])))
    const seen = await look()
    for (const [n, [status, { only }, events]] of seen.entries()) {
      expect(status).toBe(outcomes[n])
      expect(events.map(({ type }) => type)).toEqual([`job_${status}`])
      // On the very millisecond it may complete, and its job be over all the same.
      expect(status === 'completed' ? ['completed'] : ['cancelled', 'completed']).toContain(only)
      if (n % 7 !== 3)
        expect([status, only]).toEqual(n % 7 < 3 ? ['completed', 'completed'] : ['timed_out', 'cancelled'])
    }
    await world.clock.advance('1m')
    expect(await look()).toEqual(seen)
  })

  test('T9: one that has ended is never timed out; nothing of it is left', async ({ world }) => {
    const works = worksOf(world)
    const bad = task({ name: 'bad', run: () => Promise.reject(new Error('no')) })
    const curfew = await world.open({ tasks: [...works.tasks, bad] })
    const done = await curfew.submit(jobOf(works, { '+a': '', '+b': 'a' }, { timeout: '1m' }))
    const failed = await curfew.submit(job({ timeout: '1m', workflows: [{ id: 'a', task: bad }] }))
    const cancelled = await curfew.submit(jobOf(works, { a: '', b: 'a' }, { timeout: '1m' }))
    await world.clock.advance('1s')
    await cancelled.cancel()
    await world.clock.advance('1h')
    const seen = await Promise.all([done, failed, cancelled].map((handle) => handle.status()))
    expect(seen).toEqual(['completed', 'failed', 'cancelled'])
    for (const handle of [done, failed, cancelled]) expect(await ends(handle)).toHaveLength(1)
    expect(await metric(curfew, 'curfew_deadline_lateness_seconds', {}, 'count')).toBe(0)
    expect(await metric(curfew, 'curfew_slots', { state: 'taken' })).toBe(0)
    if (kind === 'postgres') {
      const left = 'select id from curfew.tasks where due_at is not null or live = 1 or light = 1'
      expect(await world.sql(left)).toEqual([])
    }
    await world.clock.advance('8d')
    expect((await curfew.list()).tasks).toEqual([])
    expect(await errorOf(done.view(), CurfewError)).toMatchObject({ code: 'not_found' })
  })

  test('T10: the timeout covers the time in queues, of its workflows and its own', async ({ world }) => {
    const works = worksOf(world)
    const far = task({ name: 'far', queue: 'far away', run: () => 1 })
    const blocks = agent({
      name: 'blocks',
      run: (_: null, ctx) => ctx.run('block', () => new Promise(() => undefined)),
    })
    const curfew = await world.open({
      tasks: [far, ...works.tasks],
      agents: [blocks],
      workQueues: ['default'],
      turns: 1,
    })
    const queued = await curfew.submit(job({ timeout: '60s', workflows: [{ id: 'a', task: far }] }))
    await world.clock.advance('1s')
    // From now on nobody has a turn for a job.
    await curfew.start(blocks, null)
    const waiting = await curfew.submit(jobOf(works, { '+a': '' }, { timeout: '30s' }))
    await world.clock.advance('1s')
    expect([await queued.status(), await waiting.status()]).toEqual(['running', 'pending'])
    await world.clock.advance('29s')
    expect(await errorOf(waiting.result(), TaskTimedOut)).toMatchObject({ kind: 'job' })
    expect(await statuses(waiting)).toEqual({ a: 'cancelled' })
    await world.clock.advance('29s')
    expect(await queued.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'job' })
    expect(await statuses(queued)).toEqual({ a: 'cancelled' })
    expect(works.began).toEqual([])
  })

  test('E6: granted time moves every deadline above the attempt; other jobs keep theirs', async ({
    world,
  }) => {
    const asks = task({
      name: 'asks',
      run: async (grants: number, { extend, signal }) => {
        for (let completed = 1; completed <= grants; completed++) await extend({ progress: { completed } })
        await world.clock.sleep('1h', signal)
      },
    })
    const graph = workflow({
      name: 'graph',
      timeout: '300s',
      actions: { asks },
      nodes: [{ id: 'n', actionId: 'asks', input: 'input' }],
    })
    const curfew = await world.open({ tasks: [asks], workflows: [graph] })
    const start = world.now
    const limits = { timeout: '300s', stuckAfter: null } as const
    // 15, 7.5 and 3.75 s.
    const extended = await curfew.submit(
      job({ ...limits, workflows: [{ id: 'a', workflow: graph, input: 3 }] }),
    )
    const other = await curfew.submit(job({ ...limits, workflows: [{ id: 'a', workflow: graph, input: 0 }] }))
    await world.clock.advance('1s')
    const [member] = await extended.workflows()
    const deadlines = [await extended.view(), await curfew.workflow(member?.runId ?? '').view()]
    expect(deadlines.map(({ deadlineAt }) => deadlineAt)).toEqual([start + 326_250, expect.any(Number)])
    await world.clock.advance('319s')
    expect([await extended.status(), await other.status()]).toEqual(['running', 'timed_out'])
    expect((await other.view()).endedAt).toBe(start + 300_000)
    await world.clock.advance(6_249)
    expect(await extended.status()).toBe('running')
    await world.clock.advance(1)
    expect(await extended.view()).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'job',
      endedAt: start + 326_250,
    })
  })

  test('E9: however many attempts use all their extensions, it moves by the most one was granted, and by its own length at most', async ({
    world,
  }) => {
    const greedy = task({
      name: 'greedy',
      run: async (_: unknown, { extend, signal }) => {
        for (let completed = 1; completed <= 5; completed++) await extend({ progress: { completed } })
        await world.clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [greedy], concurrency: 200 })
    const start = world.now
    const of = (timeout: string) =>
      job({
        timeout,
        stuckAfter: null,
        workflows: Array.from({ length: 100 }, (_, n) => ({ id: `w${n}`, task: greedy })),
      } as Parameters<typeof job>[0])
    const long = await curfew.submit(of('60s'))
    const short = await curfew.submit(of('10s'))
    await world.clock.advance('1s')
    expect((await long.view()).deadlineAt).toBe(start + 60_000 + 29_125)
    expect((await short.view()).deadlineAt).toBe(start + 20_000)
    await world.clock.advance('89s')
    expect(await long.view()).toMatchObject({ status: 'timed_out', endedAt: start + 89_125 })
    expect(await short.view()).toMatchObject({ status: 'timed_out', endedAt: start + 20_000 })
  })

  test('an operator moves the deadline of a job by any amount', async ({ world }) => {
    const works = worksOf(world)
    const curfew = await world.open({ tasks: works.tasks })
    const start = world.now
    const handle = await curfew.submit(jobOf(works, { a: '' }, { timeout: '10s' }))
    await world.clock.advance('5s')
    expect(await handle.extend('1m')).toEqual({ deadlineAt: start + 70_000 })
    await world.clock.advance('60s')
    expect(await handle.status()).toBe('running')
    await world.clock.advance('5s')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', endedAt: start + 70_000 })
  })
})

onEachStore(
  'limits of jobs, and a crash',
  (test) => {
    test('T4: a deadline stays where it was, whoever is there; what fell while nobody was fires first thing', async ({
      world,
    }) => {
      const works = worksOf(world)
      const options = { tasks: works.tasks }
      const curfew = await world.open(options)
      const start = world.now
      const { id } = await curfew.submit(jobOf(works, { a: '', b: 'a' }, { timeout: '60s' }))
      const { id: overdue } = await curfew.submit(jobOf(works, { c: '' }, { timeout: '32s' }))
      await world.runFor(30)
      await world.crash()
      await world.clock.advance('10s')
      const reopened = await world.open(options)
      await world.clock.settle()
      expect(await reopened.job(overdue).status()).toBe('timed_out')
      await world.runFor(19)
      expect(await reopened.job(id).status()).toBe('running')
      await world.clock.advance('1s')
      expect(await reopened.job(id).view()).toMatchObject({ status: 'timed_out', endedAt: start + 60_000 })
      expect(works.began).not.toContain('b')
    })
  },
  ['file', 'postgres'],
)
