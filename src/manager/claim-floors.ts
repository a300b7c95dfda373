/**
 * How far each queue and name was claimed, where it was far. What was claimed stands in the index of `light_ready`
 * until that is cleaned, and a claim that begins at the front passes all of it. So it begins behind, where nothing can
 * stand before: what this process stores it knows of, and what others have stored is looked for when they tell of it.
 */
import type { Clock } from '../core/clock.ts'
import type { ClaimWish } from '../engine/command.ts'
import type { ClaimedTask, ClaimFloor, ClaimPlace } from '../store/hot-statements.ts'
import { standsBefore } from '../store/hot-statements.ts'

type Taken = ClaimFloor & Pick<ClaimedTask, 'light'>

interface Floor {
  place: ClaimFloor
  /** How many were claimed since it is kept. */
  claimed: number
  /** The monotonic clock when that began. */
  since: number
}

/** Fewer are passed in less time than it takes to plan around them. */
const WORTH_PASSING = 2_000
/** Each is a range more to look through. */
const MOST_FLOORS = 16
/** A process that was killed may have had some of them locked, and says nothing: so long they wait at most. */
const LONGEST_MS = 10_000
/** What a peer tells of waits so long at most: looking through everything costs the others that much less often. */
const SOON_MS = 1_000
/** Of tasks that were stored while claims were under way. */
const MOST_STORED = 1_000

export class ClaimFloors {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #worthPassing: number
  readonly #floors = new Map<string, Floor>()
  /** Claims are numbered as they begin. By their numbers: where they began, if not at the front. */
  #begun = 0
  readonly #underWay = new Map<number, readonly ClaimFloor[]>()
  /** Those that began until then may have missed something. */
  #doubtful = 0
  /** The first of what was stored while claims were under way, which they may not have seen. */
  #stored: { kind: string; place: ClaimPlace; begun: number }[] = []
  #inDoubt = false

  constructor(clock: Pick<Clock, 'monotonic'>, worthPassing = WORTH_PASSING) {
    this.#clock = clock
    this.#worthPassing = worthPassing
  }

  /** A claim begins, of some queues and names behind these places; its number. */
  begin(behind: readonly ClaimFloor[]): number {
    this.#underWay.set(++this.#begun, behind)
    return this.#begun
  }

  /** Where a claim may begin, of what it asks for. */
  of({ queues, names }: { queues: readonly string[]; names: readonly string[] }): ClaimFloor[] {
    const now = this.#clock.monotonic()
    const floors: ClaimFloor[] = []
    for (const [kind, { place, claimed, since }] of this.#floors) {
      if (now - since >= LONGEST_MS) this.#floors.delete(kind)
      else if (claimed >= this.#worthPassing && queues.includes(place.queue) && names.includes(place.name))
        floors.push(place)
    }
    return floors
  }

  /** What a claim has taken: of each queue and name all there was, from where it began up to the last of them. */
  claimed(claim: number, tasks: readonly Taken[]): void {
    if (claim <= this.#doubtful) return
    const last = new Map<string, { place: ClaimFloor; claimed: number }>()
    let latest: { place: ClaimFloor; claimed: number } | undefined
    for (const task of tasks) {
      if (task.light === 0) continue
      if (latest?.place.name !== task.name || latest.place.queue !== task.queue) {
        const kind = kindOf(task)
        latest = last.get(kind) ?? { place: task, claimed: 0 }
        last.set(kind, latest)
      }
      latest.claimed++
      if (standsBefore(latest.place, task)) latest.place = task
    }
    for (const [kind, { place, claimed }] of last) this.#raise(claim, kind, place, claimed)
  }

  #raise(claim: number, kind: string, { queue, name, priority, id }: ClaimFloor, claimed: number): void {
    const place = { queue, name, priority, id }
    const unseen = this.#stored.some(
      (stored) => stored.begun >= claim && stored.kind === kind && hides(place, stored.place),
    )
    if (unseen) return
    const floor = this.#floors.get(kind)
    const from = this.#underWay.get(claim)?.find((one) => one.queue === queue && one.name === name)
    // What stands before the place where it began it has not looked at.
    if (from && (!floor || standsBefore(floor.place, from))) return
    if (floor) {
      floor.claimed += claimed
      if (standsBefore(floor.place, place)) floor.place = place
      return
    }
    const [oldest] = this.#floors.keys()
    if (this.#floors.size >= MOST_FLOORS) this.#floors.delete(oldest as string)
    this.#floors.set(kind, { place, claimed, since: this.#clock.monotonic() })
  }

  /** A claim is over. */
  end(claim: number): void {
    this.#underWay.delete(claim)
    const [oldest = Infinity] = this.#underWay.keys()
    if (this.#stored.length > 0) this.#stored = this.#stored.filter(({ begun }) => begun >= oldest)
  }

  /** What this process has stored can be claimed. */
  stored(tasks: readonly ClaimFloor[]): void {
    if (this.#floors.size === 0 && this.#underWay.size === 0) return
    // The first of each queue, name and priority.
    const first = new Map<string, ClaimFloor>()
    let latest: ClaimFloor | undefined
    for (const task of tasks) {
      if (latest && isAlike(latest, task) && latest.id < task.id) continue
      const key = `${task.priority} ${kindOf(task)}`
      latest = first.get(key)
      if (!latest || task.id < latest.id) latest = task
      first.set(key, latest)
    }
    for (const one of first.values()) {
      const kind = kindOf(one)
      const place = { priority: one.priority, id: one.id }
      const floor = this.#floors.get(kind)
      if (floor && hides(floor.place, place)) this.#floors.delete(kind)
      if (this.#underWay.size > 0) this.#stored.push({ kind, place, begun: this.#begun })
    }
    if (this.#stored.length > MOST_STORED) this.forget()
  }

  /** Others may have stored something before them, and that may wait; `soon`: for a moment only. */
  doubt(soon: boolean): void {
    this.#inDoubt = this.#floors.size > 0 || this.#underWay.size > 0
    if (!soon) return
    const since = this.#clock.monotonic() - LONGEST_MS + SOON_MS
    for (const floor of this.#floors.values()) floor.since = Math.min(floor.since, since)
  }

  get inDoubt(): boolean {
    return this.#inDoubt
  }

  /** Anything may stand anywhere. */
  forget(): void {
    this.#inDoubt = false
    this.#floors.clear()
    this.#stored = []
    this.#doubtful = this.#begun
  }
}

/** Whether a claim has looked for such a task, wherever that stands. */
export function looksAt(wish: ClaimWish | null, task: ClaimFloor): boolean {
  return (
    wish?.look === true &&
    wish.names.includes(task.name) &&
    (wish.queues.includes(task.queue) || wish.limitedQueues.includes(task.queue)) &&
    (wish.after === null || standsBefore(wish.after, task)) &&
    !wish.floors.some((floor) => floor.queue === task.queue && floor.name === task.name && hides(floor, task))
  )
}

/** Whether a claim that begins there passes it by. */
function hides(floor: ClaimPlace, place: ClaimPlace): boolean {
  return place.priority === floor.priority && place.id <= floor.id
}

function isAlike(one: ClaimFloor, other: ClaimFloor): boolean {
  return one.priority === other.priority && one.name === other.name && one.queue === other.queue
}

function kindOf({ queue, name }: ClaimFloor): string {
  return `${queue}\u0000${name}`
}
