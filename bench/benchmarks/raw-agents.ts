// The raw limit of agents: the rows that they and their tasks write, by SQL alone, in batches of at most 500
// agents. A step is a task's row inserted, claimed and ended, and the agent's row written twice, when it
// begins to wait and when its next turn begins; three commits. One batch after the other, and, where the
// store takes several writers, shared out among two connections (more are no faster), with tasks of a name each.

import { numbers } from '../benchmark.ts'
import type { AgentSession, OpenAgents } from '../contender.ts'
import { openPostgresAgents, openSqliteAgents } from './raw-agents-store.ts'
import { BATCH } from './raw-store.ts'

export interface Child {
  id: string
  token: string
  parentId: string
}

/** Each call writes and commits one batch. */
export interface RawAgents {
  /** New agents, and their first turn. */
  start(ids: string[]): Promise<void> | void
  /** A task is scheduled by each, and waited for. */
  wait(ids: string[], step: number): Promise<void> | void
  claim(): Promise<Child[]> | Child[]
  /** The tasks have ended, and the next turns have begun. */
  resume(children: Child[], step: number): Promise<void> | void
  end(ids: string[]): Promise<void> | void
  close(): Promise<void> | void
}

export const openRawAgents: OpenAgents = async ({ store, steps }) => {
  const lanes = store.startsWith('postgres') ? await openPostgresAgents(store, 1) : [openSqliteAgents(store)]
  return openLanes(lanes, steps)
}

export const openRawAgentsOverlapped: OpenAgents = async ({ store, steps }) =>
  openLanes(await openPostgresAgents(store, 2), steps)

function openLanes(lanes: RawAgents[], steps: number): AgentSession {
  let made = 0
  const nextIds = (count: number) => numbers(count).map(() => `g_${String(made++).padStart(26, '0')}`)
  const runBatch = async (lane: RawAgents, ids: string[]) => {
    await lane.start(ids)
    for (let step = 0; step < steps; step++) {
      await lane.wait(ids, step)
      const children = await lane.claim()
      if (children.length !== ids.length) throw new Error(`claimed ${children.length} of ${ids.length} tasks`)
      await lane.resume(children, step)
    }
    await lane.end(ids)
  }
  return {
    runAgents: async (count) => {
      const share = Math.ceil(count / lanes.length)
      await Promise.all(
        lanes.map(async (lane, n) => {
          let left = Math.min(share, count - n * share)
          for (; left > 0; left -= BATCH) await runBatch(lane, nextIds(Math.min(left, BATCH)))
        }),
      )
    },
    close: async () => {
      for (const lane of lanes) await lane.close()
    },
  }
}
