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

/** What a transaction is about. Looked through only where another is to begin beside it. */
class Flight<Command> {
  readonly #touching: Touching<Command>
  readonly #commands: readonly Command[]
  #cold: ReadonlySet<string> | null = null
  #ids: ReadonlySet<string> | null = null

  constructor(touching: Touching<Command>, commands: readonly Command[]) {
    this.#touching = touching
    this.#commands = commands
  }

  get ids(): ReadonlySet<string> {
    this.#ids ??= this.#idsOf(this.#commands)
    return this.#ids
  }

  /** Of those that are not hot. */
  get cold(): ReadonlySet<string> {
    this.#cold ??= this.#idsOf(this.#commands.filter((command) => !this.#touching.isHot(command)))
    return this.#cold
  }

  #idsOf(commands: readonly Command[]): Set<string> {
    return new Set(commands.flatMap((command) => this.#touching.idOf(command) ?? []))
  }
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
        : flights.some((flight) => flight.ids.has(id))
      if (meets) waiting.add(id)
      return meets || waiting.has(id)
    }
  }

  /** Until the function that it answers is called. */
  add(commands: readonly Command[]): () => void {
    const flight = new Flight(this.#touching, commands)
    this.#flights.add(flight)
    return () => void this.#flights.delete(flight)
  }
}
