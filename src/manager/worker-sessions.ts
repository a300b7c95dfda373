/**
 * The workers attached to this manager: what each can run, what it runs, and how many slots it has free.
 * Workers that can run the same are a group: work is claimed for a group, and shared out among its workers.
 */
import { AttemptMap } from '../core/attempt-map.ts'
import type { StopReason } from '../core/states.ts'
import type { Assignment, DownMessage, WorkerHello } from '../wire/worker-port.ts'
import { ClaimFocus } from './claim-focus.ts'

export interface Slot {
  /** Not its input, which may be long: only its worker needs that, and the store has it. */
  assignment: Pick<Assignment, 'taskId' | 'token' | 'name' | 'queue' | 'graceMs' | 'scope'>
  startedAt: number
  abandoned: boolean
  /** Its row may not say that it runs. */
  isLight: boolean
  /** It has ended, and that is on its way into the store. */
  reporting: boolean
  session: Session
}

const NEVER = () => false

export class Session {
  readonly workerId: string
  hello: WorkerHello
  /** In another process: its attempts outlive this manager. */
  readonly remote: boolean
  readonly slots = new AttemptMap<Slot>()
  /** Turns that run there: their tokens by agent. */
  readonly turns = new Map<string, string>()
  /** Null while it cannot be reached: what it was not sent it is told when it comes back. */
  #down: ((message: DownMessage) => void) | null
  #isBehind = NEVER
  /** It may be given work. */
  attached = true

  constructor(hello: WorkerHello, remote: boolean, down: ((message: DownMessage) => void) | null) {
    this.workerId = hello.workerId
    this.hello = hello
    this.remote = remote
    this.#down = down
  }

  get free(): number {
    return this.attached ? Math.max(0, this.hello.concurrency - this.slots.size) : 0
  }

  get freeTurns(): number {
    return this.attached ? Math.max(0, this.hello.turns - this.turns.size) : 0
  }

  /** Gives it an attempt. */
  take({ taskId, token, name, queue, graceMs, scope }: Assignment, now: number, isLight: boolean): Slot {
    const assignment = { taskId, token, name, queue, graceMs, scope }
    const slot = { assignment, startedAt: now, isLight, abandoned: false, reporting: false, session: this }
    this.slots.add(slot)
    return slot
  }

  /** It has not got what it was sent, by far: more would only fill the memory here. */
  get isBehind(): boolean {
    return this.#isBehind()
  }

  connect(down: (message: DownMessage) => void, isBehind: () => boolean): void {
    this.#down = down
    this.#isBehind = isBehind
  }

  disconnect(): void {
    this.#down = null
    this.#isBehind = NEVER
    this.attached = false
  }

  send(message: DownMessage): void {
    this.#down?.(message)
  }

  stop(message: { taskId: string; token: string; reason: StopReason; graceMs: number }): void {
    const { taskId, token, reason, graceMs } = message
    this.send({ type: 'stop', taskId, token, reason, graceMs })
  }
}

export interface Group {
  remote: boolean
  names: readonly string[]
  known: ReadonlySet<string>
  queues: readonly string[] | null
  sessions: Set<Session>
  /** Slots that claims in flight may fill. */
  wished: number
  /** There may be ready work that was not claimed yet. */
  mayWait: boolean
  readonly focus: ClaimFocus
}

interface Kind {
  name: string
  queue: string
}

function takes({ known, queues }: Group, { name, queue }: Kind): boolean {
  return known.has(name) && (queues?.includes(queue) ?? true)
}

/** The sessions, by what they can run. */
export class Groups {
  readonly #groups = new Map<string, Group>()
  readonly #what: (hello: WorkerHello) => { names: readonly string[]; queues: readonly string[] | null }
  /** Whose turn it is: each group comes first in its turn. */
  #next = 0
  #ring: Group[] = []

  constructor(what: (hello: WorkerHello) => { names: readonly string[]; queues: readonly string[] | null }) {
    this.#what = what
  }

  add(session: Session): void {
    const { names, queues } = this.#what(session.hello)
    if (names.length === 0) return
    const key = JSON.stringify([session.remote, names.toSorted(), queues?.toSorted() ?? null])
    const group = this.#groups.get(key) ?? {
      ...{ remote: session.remote, names, known: new Set(names), queues },
      ...{ sessions: new Set<Session>(), wished: 0, mayWait: true, focus: new ClaimFocus() },
    }
    group.sessions.add(session)
    group.mayWait = true
    this.#groups.set(key, group)
    this.#ring = [...this.#groups.values()]
  }

  remove(session: Session): void {
    for (const [key, group] of this.#groups) {
      if (group.sessions.delete(session) && group.sessions.size === 0) this.#groups.delete(key)
    }
    this.#ring = [...this.#groups.values()]
  }

  get all(): readonly Group[] {
    return this.#ring
  }

  runs(name: string): boolean {
    return this.#ring.some(({ known }) => known.has(name))
  }

  takes(task: Kind): boolean {
    return this.#ring.some((group) => takes(group, task))
  }

  /** Some of these may be claimed, by those that take them. */
  workLeft(tasks: readonly Kind[]): void {
    for (const group of this.#ring) group.mayWait ||= tasks.some((task) => takes(group, task))
  }

  /** Whether all of these can be taken at once, whichever of them come first. */
  haveRoomFor(tasks: readonly Kind[]): boolean {
    let last: Kind | null = null
    for (const task of tasks) {
      if (task.name === last?.name && task.queue === last.queue) continue
      last = task
      const takers = this.#ring.filter((group) => takes(group, task))
      if (takers.reduce((free, { sessions }) => free + freeOf(sessions), 0) < tasks.length) return false
    }
    return true
  }

  workArrived(): void {
    for (const group of this.#ring) {
      group.mayWait = true
      group.focus.forget()
    }
  }

  /** The first of them, in turn, of which this is true. */
  inTurn(test: (group: Group) => boolean): Group | null {
    const { length } = this.#ring
    for (let i = 0; i < length; i++) {
      const group = this.#ring[(this.#next + i) % length] as Group
      if (!test(group)) continue
      this.#next = (this.#next + i + 1) % length
      return group
    }
    return null
  }
}

/** One for each piece of work, the worker with the most room first; undefined where nobody has room. */
export function shareOut(group: Group, count: number, free: (session: Session) => number): Session[] {
  if (group.sessions.size === 1) {
    const [only] = group.sessions as unknown as [Session]
    return Array.from({ length: Math.min(count, free(only)) }, () => only)
  }
  const room = [...group.sessions]
    .map((session) => ({ session, left: free(session) }))
    .filter(({ left }) => left > 0)
    .sort((a, b) => b.left - a.left)
  const shares: Session[] = []
  while (shares.length < count && room.length > 0) {
    for (let i = 0; i < room.length && shares.length < count; i++) {
      const one = room[i] as { session: Session; left: number }
      shares.push(one.session)
      one.left--
    }
    for (let i = room.length - 1; i >= 0; i--) if (room[i]?.left === 0) room.splice(i, 1)
  }
  return shares
}

/** Slots of these sessions. */
export function freeOf(sessions: Iterable<Session>): number {
  let total = 0
  for (const { free } of sessions) total += free
  return total
}

/** Of those that have got what they were sent. */
export function roomOf(sessions: Iterable<Session>): number {
  let total = 0
  for (const { free, isBehind } of sessions) if (!isBehind) total += free
  return total
}
