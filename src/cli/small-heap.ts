/** Memory of a process that is all ours, and runs for long with little in use at any time. */
import { setFlagsFromString } from 'node:v8'

/** Whose engine is known to take them while it runs; others would complain on the terminal. */
const KNOWN = /^v(22|24)\./

/**
 * What is no longer used is collected soon instead of when there is much of it. Unless told so, a run of ten thousand
 * items grows to three times the memory of one of a hundred, with the same in use.
 *
 * Functions are compiled once they have run a hundred thousand times, which in a flood of output they have at once:
 * over ten thousand items the compilers took 25 MB, most of it while they were at work. That number is multiplied with
 * the size of the function, in 32 bits, so large ones stay as they are.
 */
const FLAGS = [
  '--semi-space-growth-factor=1',
  '--heap-growing-percent=20',
  '--invocation-count-for-maglev=100000',
  '--invocation-count-for-turbofan=100000',
  '--max-optimized-bytecode-size=10000',
]

/** Costs some of the time of a short run. Memory is given back after each collection. */
const LONG_RUN_FLAGS = ['--optimize-for-size']
/** The next begins well before it has to. With Node 22 a flood of output takes longer for it. */
const LONG_RUN_FLAGS_24 = ['--incremental-marking-hard-trigger=40']
const LONG_RUN_ITEMS = 300

export class SmallHeap {
  #isLoaded = false
  #isLong = false

  /** All code is. What is loaded afterwards is compiled anew, whatever the cache has of it. */
  loaded(): void {
    this.#isLoaded = true
    set(FLAGS)
  }

  /** There are so many. */
  items(count: number): void {
    if (this.#isLong || !this.#isLoaded || count < LONG_RUN_ITEMS) return
    this.#isLong = true
    set(LONG_RUN_FLAGS)
    if (process.version.startsWith('v24.')) set(LONG_RUN_FLAGS_24)
  }
}

function set(flags: readonly string[]): void {
  if (KNOWN.test(process.version)) for (const flag of flags) setFlagsFromString(flag)
}
