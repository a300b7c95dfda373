/**
 * What holds whatever happened to the processes of a cluster: everything has ended, no attempt ran beside another of
 * its task, no deadline came early, each task has one outcome.
 */
import { expect } from 'vitest'
import type { ConnectedCurfew, TaskView } from '../../src/curfew.ts'
import { findOverlaps, spansOf } from '../chaos/attempt-spans.ts'
import type { Cluster } from './cluster.ts'

/** The wall clocks of the store and of a handler are one machine's, read at two moments. */
const CLOCK_SLACK_MS = 25
const OUTCOMES = ['task_completed', 'task_failed', 'task_timed_out', 'task_cancelled']
/** Reading the events of more than this takes longer than it tells. */
const MOST_READ = 50

/** Then closes the cluster. `overlapping`: the tasks whose attempts could not be kept apart. */
export async function auditAndClose(
  cluster: Cluster,
  client: ConnectedCurfew,
  { overlapping = [] }: { overlapping?: readonly string[] } = {},
): Promise<void> {
  const works: TaskView[] = []
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page: Awaited<ReturnType<typeof client.list>> = await client.list({
      limit: 1_000,
      ...(cursor !== undefined && { cursor }),
    })
    works.push(...page.tasks)
    cursor = page.cursor
  }
  const open = works.filter(({ settled, parked }) => !settled || parked !== null)
  expect(open.map(({ id, name, status, parked }) => ({ id, name, status, parked }))).toEqual([])

  const facts = cluster.journal.read()
  const overlaps = findOverlaps(spansOf(facts)).filter(({ taskId }) => !overlapping.includes(taskId))
  expect(overlaps).toEqual([])
  const early = facts.filter(
    ({ type, code, deadlineAt, wall }) =>
      type === 'aborted' && code === 'timed_out' && wall < Number(deadlineAt) - CLOCK_SLACK_MS,
  )
  expect(early).toEqual([])

  const tasks = works.filter(({ kind }) => kind === 'task')
  for (const { id } of tasks.toSorted((a, b) => b.attempts - a.attempts).slice(0, MOST_READ)) {
    const events = await client.task(id).events()
    expect(events.filter(({ type }) => OUTCOMES.includes(type)).map(({ type }) => type)).toHaveLength(1)
    for (const { type, lateMs } of events)
      if (type.endsWith('timed_out')) expect(lateMs).toBeGreaterThanOrEqual(0)
    const sequences = events.map(({ seq }) => seq)
    expect(sequences).toEqual([...new Set(sequences)].toSorted((a, b) => a - b))
  }
  await client.close()
  await cluster.close()
}
