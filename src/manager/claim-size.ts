/** How many tasks a claim asks for: as many as fit into the memory, by those that were claimed before. */
import { MAX_CLAIM_BYTES } from '../core/limits.ts'

/** Before anything is known. */
const GUESSED_BYTES = 256 * 1024

export class ClaimSize {
  readonly #mostRows: number
  /** Of one task. */
  #bytes = GUESSED_BYTES

  constructor(mostRows: number) {
    this.#mostRows = mostRows
  }

  get most(): number {
    return Math.max(1, Math.min(this.#mostRows, Math.floor(MAX_CLAIM_BYTES / this.#bytes)))
  }

  /** Large ones count at once, small ones step by step: others may be among them. */
  claimed(tasks: readonly { input: string; details: string | null }[]): void {
    if (tasks.length === 0) return
    let bytes = 0
    for (const { input, details } of tasks) bytes += input.length + (details?.length ?? 0)
    this.#bytes = Math.max(bytes / tasks.length, this.#bytes / 2)
  }
}
