/**
 * Which commands may go into a transaction beside others that have not ended. Two that lock rows of the same tasks in
 * different orders wait for each other until the database notices, which takes a second: so of each task one of them
 * decides at a time. Hot commands are guarded writes of one row each, and never meet each other.
 */

export interface Touching<Command> {
  /** The row that it is about; null: none, or none that it waits for. */
  idOf(command: Command): string | null
  isHot(command: Command): boolean
}

interface Flight<Command> {
  commands: readonly Command[]
  /** Ids of those that are not hot. */
  cold: ReadonlySet<string>
  /** All of them; made when it is asked for. */
  ids: ReadonlySet<string> | null
}

export class InFlight<Command> {
  readonly #touching: Touching<Command>
  readonly #flights = new Set<Flight<Command>>()

  constructor(touching: Touching<Command>) {
    this.#touching = touching
  }

  /** Says of one command after the other, in their order, whether it has to wait; what comes behind one that does, too. */
  check(): (command: Command) => boolean {
    const { idOf, isHot } = this.#touching
    const flights = [...this.#flights]
    if (flights.length === 0) return () => false
    const waiting = new Set<string>()
    const cold = flights.filter((flight) => flight.cold.size > 0)
    return (command) => {
      const hot = isHot(command)
      if (hot && cold.length === 0 && waiting.size === 0) return false
      const id = idOf(command)
      if (id === null) return false
      const meets = hot
        ? cold.some((flight) => flight.cold.has(id))
        : flights.some((flight) => this.#idsOf(flight).has(id))
      if (meets) waiting.add(id)
      return meets || waiting.has(id)
    }
  }

  /** Until the function that it answers is called. */
  add(commands: readonly Command[]): () => void {
    const { isHot } = this.#touching
    const cold = idSet(this.#touching, commands, (command) => !isHot(command))
    const flight: Flight<Command> = { commands, cold, ids: null }
    this.#flights.add(flight)
    return () => void this.#flights.delete(flight)
  }

  #idsOf(flight: Flight<Command>): ReadonlySet<string> {
    flight.ids ??= idSet(this.#touching, flight.commands, () => true)
    return flight.ids
  }
}

function idSet<Command>(
  { idOf }: Touching<Command>,
  commands: readonly Command[],
  which: (command: Command) => boolean,
): Set<string> {
  const ids = new Set<string>()
  for (const command of commands) {
    const id = which(command) ? idOf(command) : null
    if (id !== null) ids.add(id)
  }
  return ids
}
