/** What a run tells of the timeouts of its tokens: which, once, and before its end. */
import { expect } from 'vitest'
import { expectReplay } from '../scripts/acceptance/run-replay.ts'
import { joined, NEVER, workOf } from '../scripts/acceptance/scripted-work.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { WorkflowDefinition, WorkflowHandle } from './curfew.ts'
import { workflow } from './curfew.ts'

const ENDS = ['workflow_completed', 'workflow_failed', 'workflow_timed_out', 'workflow_cancelled']

/** One node that works for an hour. */
const single = (
  name: string,
  node: { timeout?: number; queueTimeout?: number; onTimeout?: 'fail' | 'retry'; retryLimit?: number },
  options: { timeout?: number; onTimeout?: 'cancel_all' | 'fail' } = {},
) =>
  workflow({ name, ...options, nodes: [{ id: 'only', actionId: 'work', input: { ms: 3_600_000 }, ...node }] })

const calling = (child: WorkflowDefinition) =>
  workflow({
    name: 'calling',
    actions: { call: child },
    nodes: [{ id: 'call', actionId: 'call' }],
  })

/** Every timeout that was told: the fields of the seed, and the attempt. Each once, before the end of the run. */
async function timeoutsOf(handle: WorkflowHandle): Promise<string[]> {
  const events = await handle.events()
  const ends = events.filter(({ type }) => ENDS.includes(type))
  expect(ends).toHaveLength(1)
  const timeouts = events.filter(({ type }) => type === 'token_timed_out')
  for (const event of timeouts) {
    expect(Object.keys(event).toSorted()).toEqual(
      [
        ...['taskId', 'seq', 'at', 'type'],
        ...['tokenId', 'nodeId', 'attempt', 'timeoutType', 'timeoutDurationMs', 'policyApplied'],
      ].toSorted(),
    )
    expect(event.taskId).toBe(handle.id)
    expect(event.seq).toBeLessThan(ends[0]?.seq as number)
  }
  const attempts = timeouts.map(({ tokenId, attempt }) => `${tokenId}/${attempt}`)
  expect(new Set(attempts).size).toBe(attempts.length)
  return timeouts.map(({ tokenId, nodeId, attempt, timeoutType, timeoutDurationMs, policyApplied }) =>
    [`${nodeId} ${tokenId}/${attempt}`, timeoutType, timeoutDurationMs, policyApplied].join(' '),
  )
}

const rows: { of: () => WorkflowDefinition; input?: unknown; status: string; told: string[] }[] = [
  {
    of: () => single('cancels', {}, { timeout: 1_000 }),
    status: 'timed_out',
    told: ['only 0/1 workflow 1000 cancel_all'],
  },
  {
    of: () => single('fails', {}, { timeout: 1_000, onTimeout: 'fail' }),
    status: 'failed',
    told: ['only 0/1 workflow 1000 fail'],
  },
  {
    of: () => single('executes', { timeout: 1_000 }),
    status: 'failed',
    told: ['only 0/1 execution 1000 fail'],
  },
  {
    of: () => single('retries', { timeout: 1_000, onTimeout: 'retry', retryLimit: 2 }),
    status: 'failed',
    told: ['only 0/1 execution 1000 retry', 'only 0/2 execution 1000 retry', 'only 0/3 execution 1000 fail'],
  },
  {
    of: () => joined({ strategy: 'all', timeout: 1_000 }, { name: 'waits' }),
    input: [{}, { ms: 500 }, NEVER],
    status: 'failed',
    told: ['read 1/1 synchronization 1000 fail', 'read 2/1 synchronization 1000 fail'],
  },
  {
    of: () =>
      joined(
        { strategy: 'all', timeout: 1_000, onTimeout: 'proceed_with_available' },
        { name: 'proceeds', readTimeout: 5_000 },
      ),
    input: [{}, NEVER],
    status: 'completed',
    told: [
      'read 1/1 synchronization 1000 proceed_with_available',
      // It went on without it.
      'read 2/1 execution 5000 fail',
    ],
  },
  {
    of: () => calling(single('called', {}, { timeout: 1_000 })),
    status: 'failed',
    told: ['call 0/1 execution 1000 fail'],
  },
]

onEachStore('events of timeouts', (test, kind) => {
  // One that is evicted at every wait is replayed at every step.
  const residents = kind === 'memory' ? { count: 0 } : {}
  const open = (world: World, workflows: WorkflowDefinition[]) =>
    world.open({ tasks: [workOf(world)], workflows, residents, concurrency: 50 })

  test('E1: every kind of timeout is told with all its fields, once per attempt, before the end', async ({
    world,
  }) => {
    const definitions = rows.map(({ of }) => of())
    const curfew = await open(world, definitions)
    const handles: WorkflowHandle[] = []
    for (const [i, definition] of definitions.entries()) {
      handles.push(await curfew.start(definition, rows[i]?.input ?? null))
    }
    await world.clock.advance('15m')
    const told: unknown[] = []
    for (const handle of handles) {
      const { title, status } = await handle.view()
      told.push([title, status, await timeoutsOf(handle)])
    }
    expect(told).toEqual(rows.map(({ status, told }, i) => [definitions[i]?.name, status, told]))
    await expectReplay(world, ...handles)
  })

  test('E1: what never got a slot has timed out in its execution, and is not retried', async ({ world }) => {
    const waiting = single('waiting', { timeout: 1_000, onTimeout: 'retry', retryLimit: 2 })
    const busy = single('busy', {})
    const curfew = await world.open({
      tasks: [workOf(world)],
      workflows: [waiting, busy],
      residents,
      concurrency: 1,
    })
    await curfew.start(busy, null)
    await world.clock.settle()
    const handle = await curfew.start(waiting, null)
    await world.clock.advance(1_000)
    expect(await timeoutsOf(handle)).toEqual(['only 0/1 execution 1000 fail'])
    await expectReplay(world, handle)
  })

  test('E1: a token in a child is told of there, and its node in the parent', async ({ world }) => {
    const definition = calling(single('called', {}, { timeout: 1_000 }))
    const curfew = await open(world, [definition])
    const handle = await curfew.start(definition, null)
    await world.clock.advance(1_000)
    const [call] = (await handle.run()).tokens
    const child = curfew.workflow(call?.workId as string)
    expect(await timeoutsOf(child)).toEqual(['only 0/1 workflow 1000 cancel_all'])
    expect(await timeoutsOf(handle)).toEqual(['call 0/1 execution 1000 fail'])
    await expectReplay(world, handle, child)
  })
})

onEachStore(
  'events of timeouts over a restart',
  (test) => {
    test('E1: what was told before a crash is not told again after it', async ({ world }) => {
      const definitions = [
        single('retries', { timeout: 1_000, onTimeout: 'retry', retryLimit: 2 }),
        single('cancels', {}, { timeout: 1_500 }),
      ]
      const open = () => world.open({ tasks: [workOf(world)], workflows: definitions })
      const curfew = await open()
      const ids: string[] = []
      for (const definition of definitions) ids.push((await curfew.start(definition, null)).id)
      await world.clock.advance(1_200)
      await world.crash()
      await world.clock.advance(60_000)
      const reopened = await open()
      await world.runFor(60)
      const [retries, cancels] = ids.map((id) => reopened.workflow(id)) as [WorkflowHandle, WorkflowHandle]
      expect(await timeoutsOf(retries)).toEqual([
        'only 0/1 execution 1000 retry',
        'only 0/2 execution 1000 retry',
        'only 0/3 execution 1000 fail',
      ])
      expect(await timeoutsOf(cancels)).toEqual(['only 0/1 workflow 1500 cancel_all'])
      await expectReplay(world, retries, cancels)
    })
  },
  ['file', 'postgres'],
)
