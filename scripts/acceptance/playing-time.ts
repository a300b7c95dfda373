// For how long random graphs are played: 90 seconds in all unless set.
//   npm run properties -- --seconds 600
//   npm run properties -- --seed=… --path=… --file=… --test='NAME'   repeats one that failed

import fc from 'fast-check'

const SECONDS = Number(process.env.CURFEW_GRAPH_SECONDS ?? 90)
/** For making smaller what has failed. */
const MORE_MS = 30_000

/** `share`: of the whole time. When it is over nothing new is begun, and what has begun is ended. */
export function within<A extends unknown[], R>(share: number, check: (...args: A) => R): (...args: A) => R {
  const overAt = performance.now() + SECONDS * share * 1_000
  let hasFailed = false
  const noted = (error: unknown): never => {
    hasFailed ||= !fc.PreconditionFailure.isFailure(error)
    throw error
  }
  return (...args) => {
    if (performance.now() > overAt + (hasFailed ? MORE_MS : 0)) throw new fc.PreconditionFailure(true)
    try {
      const checked = check(...args)
      return checked instanceof Promise ? (checked.catch(noted) as R) : checked
    } catch (error) {
      return noted(error)
    }
  }
}

/** As many as there is time for, or the one that is asked for. */
export function asMany<T>(): fc.Parameters<T> {
  const { CURFEW_GRAPH_SEED: seed, CURFEW_GRAPH_PATH: path } = process.env
  return {
    numRuns: 1_000_000,
    maxSkipsPerRun: 1_000,
    ...(seed !== undefined && { seed: Number(seed), path: path ?? '', endOnFailure: path !== undefined }),
  }
}

/** After which a test of that share is stopped. */
export function longest(share: number): number {
  return SECONDS * share * 1_000 + MORE_MS + 60_000
}
