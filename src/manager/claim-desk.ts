/** What to claim for the workers that are attached, and where it is looked for; claims that are under way. */
import type { Clock } from '../core/clock.ts'
import type { IdSource } from '../core/id.ts'
import type { ClaimWish } from '../engine/command.ts'
import type { ClaimedTask, NewRow } from '../store/hot-statements.ts'
import type { StoreTime } from '../store/store-time.ts'
import { ClaimFloors, looksAt } from './claim-floors.ts'
import { ClaimSize } from './claim-size.ts'
import type { ExpectedWork } from './expected-work.ts'
import type { Queues } from './queues.ts'
import type { TurnDesk } from './turn-desk.ts'
import type { Group, Groups } from './worker-sessions.ts'
import { roomOf } from './worker-sessions.ts'

interface ClaimInFlight {
  group: Group | null
  /** It looks for everything there is. */
  all: boolean
  /** The next one went on behind it. */
  followed: boolean
  /** Its number among those that look for light tasks. */
  number: number
}

interface Parts {
  clock: Clock
  /** In one transaction. */
  mostClaimed: number
  ids: IdSource
  time: StoreTime
  queues: Queues
  turns: TurnDesk
  groups: Groups
  /** There may be something to claim. */
  kick(): void
}

export class ClaimDesk {
  readonly #parts: Parts
  readonly #groups: Groups
  readonly #floors: ClaimFloors
  readonly #size: ClaimSize
  /** By their tokens. */
  readonly #inFlight = new Map<string, ClaimInFlight>()
  #claiming = true

  constructor(parts: Parts) {
    this.#parts = parts
    this.#groups = parts.groups
    this.#floors = new ClaimFloors(parts.clock)
    this.#size = new ClaimSize(parts.mostClaimed)
  }

  runs(name: string): boolean {
    return this.#groups.runs(name)
  }

  /** What would be claimed from, for whoever looks for ready work. */
  wanted(): { queues: string[]; names: string[] } {
    const groups = this.#groups.all.filter((group) => this.#free(group) > 0)
    const queues = new Set(groups.flatMap((group) => this.#parts.queues.names(group.queues)))
    return { queues: [...queues], names: [...new Set(groups.flatMap(({ names }) => names))] }
  }

  /** There may be work that this process knows nothing of; `ofPeer`: a peer has stored some. */
  workArrived(ofPeer = false): void {
    // While claims come back full it will be found in its turn.
    if (this.#groups.all.every(({ focus }) => focus.isNarrow)) this.#floors.doubt(ofPeer)
    else this.#floors.forget()
    this.#groups.workArrived()
  }

  /** The same, but nothing of it is light, or it was told of with `stored`. */
  workIsReady(): void {
    this.#groups.workArrived()
  }

  /** New tasks can be claimed; the claim of their own transaction has left them. */
  stored(tasks: readonly NewRow[], wish: ClaimWish | null): void {
    // Others are never light.
    this.#floors.stored(tasks.filter((task) => task.key === null && !('parentId' in task)))
    if (tasks.some((task) => !looksAt(wish, task) && this.#groups.takes(task))) this.workIsReady()
    // It was filled, for one group of workers: others may have room.
    else this.#groups.workLeft(tasks)
  }

  /** Whether workers of this process can take all of these at once. */
  hasRoomFor(tasks: readonly { name: string; queue: string }[]): boolean {
    return this.#claiming && this.#groups.haveRoomFor(tasks)
  }

  stop(): void {
    this.#claiming = false
  }

  get stopped(): boolean {
    return !this.#claiming
  }

  get wishes(): boolean {
    return this.#groups.all.some((group) => this.#wishesTasks(group)) || this.#parts.turns.wishes
  }

  /** How many tasks and turns the next claim asks for. */
  get wished(): number {
    const tasks = this.#groups.all.find((group) => this.#wishesTasks(group))
    return (tasks ? this.#room(tasks) : 0) + (this.#parts.turns.wishes ? 1 : 0)
  }

  #wishesTasks(group: Group): boolean {
    return group.mayWait && this.#room(group) > 0
  }

  /** What to claim now, if anything. Its slots are kept free until it was `filled` or `missed`. */
  wish(expected: ExpectedWork): ClaimWish | null {
    const { ids, time, queues } = this.#parts
    // Slots of a queue with a limit are counted by the claim alone.
    if (expected.tasks > 0) {
      for (const group of this.#groups.all) if (queues.limited(group.queues).length > 0) group.mayWait = true
    }
    const group =
      this.#groups.inTurn((one) => this.#wishesTasks(one)) ??
      (expected.tasks === 0
        ? null
        : this.#groups.inTurn(
            (one) => this.#room(one) > 0 && expected.names.some((name) => one.known.has(name)),
          ))
    const look = group !== null && this.#wishesTasks(group)
    const room = group ? this.#room(group) : 0
    const slots = look ? room : Math.max(0, Math.min(room, expected.tasks))
    const turns = this.#parts.turns.wish(expected)
    if (slots === 0 && !turns) return null
    const token = ids.next(group?.remote ? 'r' : 'a', time.now())
    if (group) {
      if (look) group.mayWait = false
      group.wished += slots
    }
    const all = {
      names: group?.names ?? [],
      queues: group ? queues.unlimited(group.queues) : [],
      limitedQueues: group ? queues.limited(group.queues) : [],
    }
    const ask = group && look ? group.focus.ask(all) : { asked: { ...all, after: null }, all: true }
    const { after } = ask.asked
    const floors = look && !after ? this.#floors.of(ask.asked) : []
    const number = this.#floors.begin(after ? [after] : floors)
    this.#inFlight.set(token, { group, all: ask.all, followed: false, number })
    return { token, ...ask.asked, floors, slots, look, turns }
  }

  /** What a claim has got is known, its commit is not: the next one need not wait for that. */
  answered(wish: ClaimWish, claimed: readonly ClaimedTask[]): void {
    const flight = this.#inFlight.get(wish.token)
    if (!flight?.group || !wish.look) return
    const { group, number } = flight
    this.#size.claimed(claimed)
    this.#floors.claimed(number, claimed)
    // What it was told of meanwhile may stand before them.
    if (claimed.length < wish.slots && this.#floors.inDoubt) {
      this.#floors.forget()
      group.mayWait = true
    }
    const goesOn = group.focus.claimed(claimed, wish.slots)
    // Of a queue with a limit only one can be claiming.
    if (!goesOn || wish.limitedQueues.length > 0) return
    flight.followed = true
    group.mayWait = true
    this.#parts.kick()
  }

  /** The claim is committed. The workers it was for. */
  filled(wish: ClaimWish, claimed: readonly ClaimedTask[], withNew: boolean): Group | null {
    const { group, all, followed } = this.#settle(wish)
    // One that was filled, or did not look for all, says nothing about what is left; what is new nobody behind it saw.
    const mayWait = followed ? withNew : claimed.length >= wish.slots || !all
    if (group && wish.look && mayWait) group.mayWait = true
    return group
  }

  /** What a transaction has claimed, stored or locked is as it was before. */
  takenBack(wish: ClaimWish | null): void {
    this.#floors.forget()
    const flight = wish && this.#inFlight.get(wish.token)
    if (!flight) return
    flight.followed = false
    flight.group?.focus.forget()
  }

  /** The claim is not tried again. */
  missed(wish: ClaimWish): void {
    const { group } = this.#settle(wish)
    if (wish.turns) this.#parts.turns.missed(wish.turns)
    if (group && wish.look) group.mayWait = true
  }

  #settle(wish: ClaimWish): ClaimInFlight {
    const flight = this.#inFlight.get(wish.token)
    this.#inFlight.delete(wish.token)
    if (flight) this.#floors.end(flight.number)
    if (flight?.group) flight.group.wished -= wish.slots
    return flight ?? { group: null, all: true, followed: false, number: 0 }
  }

  /** Nothing that is claimed is still on its way here. */
  get settled(): boolean {
    return this.#inFlight.size === 0
  }

  /** What it took has not reached its workers yet. */
  isUnderWay(token: string): boolean {
    return this.#inFlight.has(token)
  }

  #free(group: Group): number {
    return this.#claiming ? roomOf(group.sessions) : 0
  }

  #room(group: Group): number {
    return Math.min(this.#free(group) - group.wished, this.#size.most)
  }
}
