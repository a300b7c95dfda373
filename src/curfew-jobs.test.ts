/** Jobs: workflows that wait for each other. */
import { expect } from 'vitest'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { JobHandle, JobOptions } from './curfew.ts'
import {
  agent,
  Curfew,
  CurfewError,
  DefinitionError,
  job,
  TaskCancelled,
  TaskFailed,
  TaskTimedOut,
  task,
  WaitTimedOut,
  workflow,
} from './curfew.ts'

interface Order {
  out?: string
  seconds?: number
  fails?: boolean
}

/** Work that takes as long as it is told, ends as it is told, and keeps what it did. */
function workOf(world: World) {
  const did: string[] = []
  const work = task({
    name: 'work',
    run: async ({ out = '', seconds = 0, fails = false }: Order, { signal }) => {
      did.push(`${out} starts`)
      if (seconds) await world.clock.sleep(seconds * 1_000, signal)
      did.push(`${out} ends`)
      if (fails) throw new Error(`${out} broke`)
      return out
    },
  })
  return { work, did }
}

type Entry = [id: string, order?: Order, rest?: { dependsOn?: string[]; runIf?: 'failed' | 'always' }]

function jobOf(work: ReturnType<typeof workOf>['work'], entries: Entry[], rest: Partial<JobOptions> = {}) {
  const workflows = entries.map(([id, order = {}, more = {}]) => ({
    id,
    task: work,
    input: { out: id, ...order },
    ...more,
  }))
  return job({ name: 'nightly', ...rest, workflows } as JobOptions)
}

const statuses = async (handle: JobHandle) =>
  Object.fromEntries((await handle.workflows()).map(({ id, status }) => [id, status]))

onEachStore('jobs', (test) => {
  test('run their workflows one after the other, and give the results of each', async ({ world }) => {
    const { work, did } = workOf(world)
    const twice = workflow({
      name: 'twice',
      actions: { work },
      nodes: [
        { id: 'one', actionId: 'work', input: { out: "'one'" } },
        { id: 'two', actionId: 'work', input: { out: "'two'" } },
      ],
      transitions: [{ from: 'one', to: 'two' }],
    })
    const writer = agent({
      name: 'writer',
      run: async (input: { title: string }, ctx) =>
        `${input.title} ${await ctx.schedule(work, { out: 'page' })}`,
    })
    const curfew = await world.open({ tasks: [work], agents: [writer], workflows: [twice] })
    const handle = await curfew.submit(
      job({
        name: 'book',
        workflows: [
          { id: 'end', task: work, input: { out: 'end' }, dependsOn: ['write'] },
          { id: 'write', agent: writer, input: { title: 'a' }, dependsOn: 'graph' },
          { id: 'graph', workflow: twice },
        ],
      }),
    )
    expect(handle.id).toMatch(/^j_/)
    expect(await handle.result()).toEqual({ end: 'end', write: 'a page', graph: expect.anything() })
    expect(did.filter((what) => what.endsWith('starts'))).toEqual([
      'one starts',
      'two starts',
      'page starts',
      'end starts',
    ])
    const members = await handle.workflows()
    expect(members.map(({ id, kind, name, status, output }) => [id, kind, name, status, output])).toEqual([
      ['end', 'task', 'work', 'completed', 'end'],
      ['write', 'agent', 'writer', 'completed', 'a page'],
      ['graph', 'workflow', 'twice', 'completed', expect.anything()],
    ])
    expect(members.map(({ runId }) => runId?.[0])).toEqual(['t', 'g', 'w'])
    expect(await curfew.workflow(members[2]?.runId ?? '').run()).toMatchObject({ status: 'completed' })
    expect(await handle.view()).toMatchObject({ kind: 'job', name: 'book', status: 'completed' })
    expect((await handle.events()).map(({ type }) => type)).toEqual([
      'job_scheduled',
      'job_started',
      'job_completed',
    ])
  })

  test('S2: in a diamond the last starts once, when both before it have ended', async ({ world }) => {
    const { work, did } = workOf(world)
    const curfew = await world.open({ tasks: [work] })
    const handle = await curfew.submit(
      jobOf(work, [
        ['top'],
        ['left', { seconds: 1 }, { dependsOn: ['top'] }],
        ['right', { seconds: 5 }, { dependsOn: ['top'] }],
        ['bottom', {}, { dependsOn: ['left', 'right'] }],
      ]),
    )
    await world.clock.advance('4s')
    expect(await statuses(handle)).toEqual({
      top: 'completed',
      left: 'completed',
      right: 'running',
      bottom: 'pending',
    })
    expect((await handle.workflow('bottom').view()).runId).toBeNull()
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual({ top: 'top', left: 'left', right: 'right', bottom: 'bottom' })
    expect(did.filter((what) => what === 'bottom starts')).toHaveLength(1)
  })

  test('a workflow whose dependency did not complete is cancelled with that cause; others run on', async ({
    world,
  }) => {
    const { work, did } = workOf(world)
    const curfew = await world.open({ tasks: [work] })
    const handle = await curfew.submit(
      jobOf(work, [
        ['bad', { fails: true }],
        ['after', {}, { dependsOn: ['bad'] }],
        ['last', {}, { dependsOn: ['after'] }],
        ['other', { seconds: 60 }],
      ]),
    )
    await world.clock.advance('1s')
    expect(await handle.status()).toBe('running')
    expect(await statuses(handle)).toEqual({
      bad: 'failed',
      after: 'cancelled',
      last: 'cancelled',
      other: 'running',
    })
    await world.clock.advance('60s')
    const error = await errorOf(handle.result(), TaskFailed)
    expect(error.message).toMatch(/^job nightly \(j_\w+\) failed.*workflow bad failed.*bad broke/)
    const [bad, after, last, other] = await handle.workflows()
    expect(bad?.failure?.message).toBe('bad broke')
    expect(after?.failure).toMatchObject({ code: 'dependency', details: { workflow: 'bad' } })
    expect(last?.failure?.message).toBe('workflow after, which it depends on, was cancelled')
    expect(other).toMatchObject({ status: 'completed', output: 'other' })
    expect(did).not.toContain('after starts')
    expect(await errorOf(handle.workflow('after').result(), TaskCancelled)).toBeInstanceOf(CurfewError)
    expect(await handle.workflow('other').result()).toBe('other')
  })

  test('run_if: what follows a failure runs after it, what always follows always, and neither hides it', async ({
    world,
  }) => {
    const { work } = workOf(world)
    const curfew = await world.open({ tasks: [work] })
    const follow = (fails: boolean) =>
      jobOf(work, [
        ['first', { fails }],
        ['repair', {}, { dependsOn: ['first'], runIf: 'failed' }],
        ['tidy', {}, { dependsOn: ['first', 'repair'], runIf: 'always' }],
        ['next', {}, { dependsOn: ['first'] }],
      ])
    const bad = await curfew.submit(follow(true))
    await errorOf(bad.result(), TaskFailed)
    expect(await statuses(bad)).toEqual({
      first: 'failed',
      repair: 'completed',
      tidy: 'completed',
      next: 'cancelled',
    })
    const good = await curfew.submit(follow(false))
    expect(await good.result()).toEqual({ first: 'first', repair: null, tidy: 'tidy', next: 'next' })
    expect(await statuses(good)).toMatchObject({ repair: 'cancelled' })
  })

  test('fail_fast stops the others, and waits until they have', async ({ world }) => {
    const { work } = workOf(world)
    const stubborn = task({
      name: 'stubborn',
      // Follows its signal two seconds late.
      run: (_: unknown, { signal }) =>
        world.clock.sleep('1h', signal).catch(() => world.clock.sleep('2s').then(() => 'late')),
    })
    const curfew = await world.open({ tasks: [work, stubborn] })
    const start = world.now
    const handle = await curfew.submit(
      job({
        failFast: true,
        workflows: [
          { id: 'bad', task: work, input: { seconds: 10, fails: true, out: 'bad' } },
          { id: 'long', task: stubborn },
          { id: 'next', task: work, input: {}, dependsOn: 'long' },
          { id: 'tell', task: work, input: { out: 'told' }, dependsOn: 'bad', runIf: 'failed' },
        ],
      }),
    )
    await world.clock.advance('11s')
    expect(await statuses(handle)).toEqual({
      bad: 'failed',
      long: 'cancelled',
      next: 'cancelled',
      tell: 'completed',
    })
    expect(await handle.status()).toBe('running')
    await world.clock.advance('1s')
    await errorOf(handle.result(), TaskFailed)
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 12_000 })
    expect((await handle.workflow('next').view()).failure).toMatchObject({ code: 'fail_fast' })
  })

  test('a job is what the first in time was that did not complete', async ({ world }) => {
    const { work } = workOf(world)
    const slow = task({
      name: 'slow',
      timeout: '5s',
      run: (_: unknown, { signal }) => world.clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [work, slow] })
    const handle = await curfew.submit(
      job({
        name: 'mixed',
        workflows: [
          { id: 'fails', task: work, input: { out: 'late', seconds: 10, fails: true } },
          { id: 'times-out', task: slow },
          { id: 'after', task: work, input: {}, dependsOn: 'times-out' },
        ],
      }),
    )
    await world.clock.advance('11s')
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error).toMatchObject({ kind: 'total' })
    const { failure, status } = await handle.view()
    expect({ status, message: failure?.message }).toEqual({
      status: 'timed_out',
      message: expect.stringMatching(/^workflow times-out timed out: /),
    })
  })

  test('a single workflow, agent or task is a job of one', async ({ world }) => {
    const { work } = workOf(world)
    const one = workflow({
      name: 'one',
      actions: { work },
      nodes: [{ id: 'w', actionId: 'work', input: { out: 'input.x' } }],
    })
    const echo = agent({ name: 'echo', run: async (input: { x: string }) => input.x })
    const curfew = await world.open({ tasks: [work], agents: [echo], workflows: [one] })
    const ofTask = await curfew.submit(work, { out: 'done' })
    const ofAgent = await curfew.submit(echo, { x: 'said' })
    const ofGraph = await curfew.submit(one, { x: 'run' })
    expect(await ofTask.result()).toEqual({ work: 'done' })
    expect(await ofAgent.result()).toEqual({ echo: 'said' })
    expect(Object.keys((await ofGraph.result()) as object)).toEqual(['one'])
    expect(await ofTask.view()).toMatchObject({ kind: 'job', name: 'work' })
  })

  test('the same key is the same job; another job with it is refused', async ({ world }) => {
    const { work, did } = workOf(world)
    const curfew = await world.open({ tasks: [work] })
    const first = await curfew.submit(jobOf(work, [['a']]), { key: 'today' })
    await first.result()
    const again = await curfew.submit(jobOf(work, [['a']]), { key: 'today' })
    expect([again.id, again.existing, first.existing]).toEqual([first.id, true, false])
    expect(did.filter((what) => what === 'a starts')).toHaveLength(1)
    expect(await first.view()).toMatchObject({ key: 'today' })
    const other = curfew.submit(jobOf(work, [['b']]), { key: 'today' })
    expect(await errorOf(other, CurfewError)).toMatchObject({
      code: 'key_conflict',
      message: expect.stringContaining(`job nightly: the key 'today' belongs to ${first.id}`),
    })
  })

  test('a workflow of a job is waited for by itself, however long the others take', async ({ world }) => {
    const { work } = workOf(world)
    const curfew = await world.open({ tasks: [work] })
    const handle = await curfew.submit(
      jobOf(work, [
        ['long', { seconds: 3_600 }],
        ['a', { seconds: 1 }],
        ['b', { seconds: 1 }, { dependsOn: ['a'] }],
        ['c', { seconds: 3_600 }, { dependsOn: ['b'] }],
      ]),
    )
    const ended: string[] = []
    const waits = ['a', 'b'].map((id) =>
      handle
        .workflow(id)
        .result()
        .then((out) => ended.push(String(out))),
    )
    const impatient = errorOf(handle.workflow('c').result({ timeout: '1500ms' }), WaitTimedOut)
    await world.clock.advance('2500ms')
    await Promise.all(waits)
    expect(ended).toEqual(['a', 'b'])
    expect((await impatient).message).toContain('workflow c of job')
    const unknown = await errorOf(handle.workflow('x').view(), CurfewError)
    expect(unknown).toMatchObject({ code: 'not_found', hint: 'It has long, a, b, c.' })
    expect(await errorOf(handle.workflow('x').result(), CurfewError)).toMatchObject({ code: 'not_found' })
  })
})

onEachStore(
  'submitting jobs',
  (test) => {
    test('T10: one without workflows, or with a limit that is none, is refused', async ({ world }) => {
      const { work } = workOf(world)
      const refused = (options: Partial<JobOptions>) => {
        try {
          jobOf(work, [['a']], options)
        } catch (error) {
          return (error as DefinitionError).problems.map(
            ({ code, path, message }) => `${code} ${path}: ${message}`,
          )
        }
        return null
      }
      expect(refused({ timeout: 0 })).toEqual([expect.stringContaining('timeout')])
      expect(refused({ timeout: -5 })).toEqual([expect.stringContaining('-5')])
      expect(refused({ timeout: Number.NaN })).toEqual([expect.stringContaining('NaN')])
      expect(refused({ timeout: '500d' })).toHaveLength(1)
      expect(() => job({ workflows: [] })).toThrow('a job needs at least one workflow')
    })

    test('all that is wrong is told together, before anything is stored', async ({ world }) => {
      const { work } = workOf(world)
      const curfew = await world.open({ tasks: [work] })
      const broken = () =>
        jobOf(work, [
          ['a', {}, { dependsOn: ['c'] }],
          ['b', {}, { dependsOn: ['nowhere'] }],
          ['b'],
          ['c', {}, { dependsOn: ['a'] }],
        ])
      expect(broken).toThrow(/another workflow 'b'/)
      expect(broken).toThrow(/no workflow 'nowhere'/)
      expect(broken).toThrow(/depend on each other: a → c → a/)
      const unknown = job({ workflows: [{ id: 'a', task: 'wrok' }] })
      const error = await errorOf(curfew.submit(unknown), DefinitionError)
      expect(error.message).toContain("there is no task 'wrok'")
      expect(error.message).toContain("Did you mean 'work'?")
      expect(await errorOf(curfew.submit({} as never), CurfewError)).toMatchObject({ code: 'invalid_option' })
      expect((await curfew.list()).tasks).toEqual([])
    })

    test('an input that the schema refuses is refused at submit', async ({ world }) => {
      const strict = task({
        name: 'strict',
        input: {
          '~standard': {
            version: 1 as const,
            vendor: 'test',
            validate: (value: unknown) =>
              value === 1 ? { value: 1 } : { issues: [{ message: 'must be one' }] },
          },
        },
        run: (input) => input,
      })
      const curfew = await world.open({ tasks: [strict] })
      await expect(curfew.submit(strict, 2)).rejects.toThrow('must be one')
      await expect(
        curfew.submit(job({ workflows: [{ id: 'a', task: 'strict', input: 2 }] })),
      ).rejects.toThrow('must be one')
      expect(await (await curfew.submit(strict, 1)).result()).toEqual({ strict: 1 })
    })
  },
  ['memory'],
)

onEachStore(
  'jobs after a crash',
  (test) => {
    test('T4: go on where they were: nothing that has ended runs again, what ran is repeated', async ({
      world,
    }) => {
      const ran: string[] = []
      // Without a limit of its own: a repeat that moves is no stuck job.
      const steps = task({
        name: 'steps',
        run: async ({ out }: { out: string }, { signal, attempt, progress }) => {
          ran.push(`${out} ${attempt}`)
          for (let n = 1; n <= 10; n++) {
            await world.clock.sleep('20s', signal)
            progress({ completed: n })
          }
          return out
        },
      })
      const twice = workflow({
        name: 'twice',
        timeout: null,
        actions: { steps },
        nodes: [
          { id: 'one', actionId: 'steps', input: { out: "'one'" } },
          { id: 'two', actionId: 'steps', input: { out: "'two'" } },
        ],
        transitions: [{ from: 'one', to: 'two' }],
      })
      const options = { tasks: [steps], workflows: [twice] }
      const curfew = await world.open(options)
      const { id } = await curfew.submit(
        job({
          stuckAfter: '2m',
          workflows: [
            { id: 'graph', workflow: twice },
            { id: 'last', task: steps, input: { out: 'last' }, dependsOn: 'graph' },
          ],
        }),
      )
      await world.runFor(250)
      expect(ran).toEqual(['one 1', 'two 1'])
      await world.crash()
      const reopened = await world.open(options)
      await world.runFor(240)
      expect(ran).toEqual(['one 1', 'two 1', 'two 2', 'last 1'])
      await world.crash()
      const again = await world.open(options)
      await world.runFor(240)
      const result = (await again.job(id).result()) as Record<string, unknown>
      expect(result.last).toBe('last')
      expect(ran).toEqual(['one 1', 'two 1', 'two 2', 'last 1', 'last 2'])
      expect(await statuses(again.job(id))).toEqual({ graph: 'completed', last: 'completed' })
      expect(reopened).toBeInstanceOf(Curfew)
    })
  },
  ['file', 'postgres'],
)
