// The same program twice: against an engine of this process, and over the wire with a worker elsewhere. What it gathers
// is compared without ids and times.

import { expect } from 'vitest'
import type { Curfew, OpenOptions } from '../../src/curfew.ts'
import type { WireWorld } from './wire-world.ts'
import { Gates } from './wire-world.ts'

/** What both kinds of client have. */
export type AnyClient = Pick<
  Curfew,
  | 'schedule'
  | 'scheduleMany'
  | 'start'
  | 'submit'
  | 'task'
  | 'agent'
  | 'workflow'
  | 'job'
  | 'list'
  | 'resume'
  | 'metrics'
  | 'watch'
  | 'workers'
  | 'serverStatus'
  | 'submitNamed'
  | 'deadLetters'
>

export type Works = Pick<OpenOptions, 'tasks' | 'agents' | 'workflows'>
type Program<W extends Works> = (client: AnyClient, gates: Gates, works: W) => Promise<unknown>

/** Answers what the program gathered over the wire, after it was compared. */
export async function bothWays<W extends Works>(
  wire: WireWorld,
  works: (gates: Gates) => W,
  program: Program<W>,
  { residents = {} }: Pick<OpenOptions, 'residents'> = {},
): Promise<unknown> {
  const here = new Gates()
  const local = works(here)
  const engine = await wire.open({ ...definitions(local), residents, store: await wire.freshStore() })
  const expected = plainly(await program(engine, here, local))

  const there = new Gates()
  const remote = works(there)
  const manager = await wire.manager({ store: await wire.freshStore() })
  await wire.work(manager, { ...definitions(remote), residents })
  const client = await wire.connect(manager, definitions(remote))
  const gathered = plainly(await program(client, there, remote))

  expect(gathered).toEqual(expected)
  return gathered
}

function definitions({ tasks, agents, workflows }: Works): Works {
  return { ...(tasks && { tasks }), ...(agents && { agents }), ...(workflows && { workflows }) }
}

/** Everything there is to read about a piece of work. */
export async function readAll(client: AnyClient, id: string) {
  const handle = client.task(id)
  const { cursor: _, tasks } = await client.list({ limit: 1_000 })
  return {
    view: await handle.view(),
    events: await handle.events(),
    explanation: await handle.explain(),
    listed: tasks.find((one) => one.id === id),
    below: (await client.list({ parent: id })).tasks,
  }
}

/** Reads through both clients are equal to the last field; only what is left of a limit has gone on. */
export async function expectSameReads(engine: AnyClient, client: AnyClient, id: string): Promise<void> {
  const left = withoutTimes(await readAll(engine, id), ['remainingMs'])
  expect(withoutTimes(await readAll(client, id), ['remainingMs'])).toStrictEqual(left)
}

/** An error as a caller can look at it. */
export async function shapeOf(promise: Promise<unknown>): Promise<unknown> {
  const error = await promise.then(
    (value) => ({ value }),
    (thrown: Error) => thrown,
  )
  if (!(error instanceof Error)) return error
  const own = Object.getOwnPropertyNames(error).filter((name) => name !== 'stack' && name !== 'cause')
  const properties = own.map((name) => [name, (error as unknown as Record<string, unknown>)[name]])
  return { class: error.constructor.name, ...Object.fromEntries(properties) }
}

const TIMES = [
  ...['at', 'now', 'since', 'until', 'nextAt', 'createdAt', 'startAt', 'startedAt', 'endedAt', 'deadlineAt'],
  ...['attemptDeadlineAt', 'remainingMs', 'lateMs', 'dueAt', 'attachedAt', 'heardAt', 'stopAt', 'firedAt'],
  ...['elapsedMs', 'tookMs', 'retryAt', 'stack', 'updatedAt', 'retriedAt'],
]
const ID = /\b[tgwjnarq]_[0-9a-z]{26}\b/g
const LENGTH = /\b(\d+(\.\d+)?(ms|s|m|h|d))+\b/g

/** Ids by the order in which they appear, times as their names. */
function plainly(value: unknown): unknown {
  const ids = new Map<string, string>()
  const idOf = (id: string) => {
    const known = ids.get(id) ?? `${id[0]}#${ids.size}`
    ids.set(id, known)
    return known
  }
  const text = JSON.stringify(withoutTimes(value, TIMES)) ?? 'null'
  return JSON.parse(text.replaceAll(ID, idOf))
}

function withoutTimes(value: unknown, names: readonly string[]): unknown {
  if (Array.isArray(value)) return value.map((one) => withoutTimes(one, names))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => {
      if (names.includes(key) && (typeof one === 'number' || key === 'stack')) return [key, `a ${key}`]
      if (typeof one === 'number' && isTurns(key, value)) return [key, 'turns']
      // Sentences say how long something has taken.
      if (key === 'summary' && typeof one === 'string') return [key, one.replaceAll(LENGTH, 'so long')]
      return [key, withoutTimes(one, names)]
    }),
  )
}

/** How many turns something took depends on what came together. */
function isTurns(key: string, { id, taskId }: { id?: unknown; taskId?: unknown }): boolean {
  return key === 'turns' || (key === 'attempts' && !String(id ?? taskId).startsWith('t_'))
}
