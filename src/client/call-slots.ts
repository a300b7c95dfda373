/** So many at a time: each request over the wire has a connection of its own, and of those a process has only some. */
export class CallSlots {
  readonly #most: number
  #taken = 0
  /** Those before `#first` have had their turn. */
  #queue: (() => void)[] = []
  #first = 0

  constructor(most: number) {
    this.#most = most
  }

  /** In the order in which they came. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#taken < this.#most) this.#taken++
    else await new Promise<void>((resolve) => this.#queue.push(resolve))
    try {
      return await call()
    } finally {
      this.#next()
    }
  }

  /** Whose turn it is has the slot at once: nobody who comes meanwhile goes before. */
  #next(): void {
    const next = this.#queue[this.#first]
    if (next) {
      this.#first++
      next()
    } else {
      this.#taken--
      this.#queue = []
      this.#first = 0
    }
  }
}
