/** Waits for many at once: tells of each when it has settled, of those that settle together in one message. */
import { create } from '@bufbuild/protobuf'
import { CurfewError } from '../core/errors.ts'
import { MAX_PAYLOAD_BYTES } from '../core/limits.ts'
import type { Waited } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { WaitedSchema } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { ErrorDetailSchema, WorkSchema } from '../wire/gen/curfew/v1/work_pb.ts'
import { fromPlain } from '../wire/plain.ts'
import type { Settled } from '../wire/task-service.ts'
import { detailOf } from '../wire/wire-error.ts'

/** Of texts in one message. */
const MOST_LENGTH = 1024 * 1024
/** Of texts that nobody has taken yet. What ends beyond that is read again, so many at a time that they find room. */
const MOST_HELD = 16 * 1024 * 1024
const MOST_READ_AGAIN = MOST_HELD / MAX_PAYLOAD_BYTES

/** A wait that is looked after while it lasts. */
export interface OpenWait {
  /** Ends it, with null. */
  signal: AbortSignal
  /** It was looked at, and has not settled. */
  onUnsettled(): void
}

export interface Waitable {
  settled(id: string, timeoutMs: null, wait: OpenWait): Promise<Settled | null>
}

export interface Ends {
  ends: Waited[]
  /** All have been looked at, and those that had settled by then were told of. */
  looked: boolean
}

interface Ended {
  waited: Waited
  length: number
}

/** The first comes when all have been looked at, whether or not one has settled. Ends when all have been told of. */
export async function* endsOf(
  service: Waitable,
  ids: ReadonlySet<string>,
  signal: AbortSignal,
): AsyncGenerator<Ends> {
  const over = new AbortController()
  const stop = AbortSignal.any([signal, over.signal])
  const ended: Ended[] = []
  /** They have settled, and there was no room for them. */
  const later: string[] = []
  const unlooked = new Set(ids)
  /** They had settled when they were first looked at. */
  const untold = new Set<string>()
  let underWay = 0
  let held = 0
  let failed: { error: unknown } | null = null
  let wake = () => {}
  const tell = (one: Ended) => {
    ended.push(one)
    held += one.length
  }
  const waitFor = async (id: string) => {
    const onUnsettled = () => {
      if (unlooked.delete(id)) wake()
    }
    underWay++
    try {
      const settled = await service.settled(id, null, { signal: stop, onUnsettled })
      if (settled && held > MOST_HELD) later.push(id)
      else if (settled) tell(endOf(id, settled))
    } catch (error) {
      // Of one that is not there the others are no matter.
      if (error instanceof CurfewError && error.code === 'not_found') tell(missing(id, error))
      else failed ??= { error }
    }
    if (unlooked.delete(id)) untold.add(id)
    underWay--
    wake()
  }
  try {
    for (const id of ids) void waitFor(id)
    for (let isFirst = true; ; ) {
      const somethingHappens = new Promise<void>((resolve) => {
        wake = resolve
      })
      if (failed) throw (failed as { error: unknown }).error
      if (unlooked.size > 0) await somethingHappens
      else if (ended.length > 0 || isFirst) {
        isFirst = false
        const some = ended.splice(0, fitting(ended))
        for (const { waited, length } of some) {
          held -= length
          untold.delete(waited.id)
        }
        yield { ends: some.map(({ waited }) => waited), looked: untold.size === 0 }
      } else if (later.length > 0) await Promise.all(later.splice(0, MOST_READ_AGAIN).map(waitFor))
      else if (underWay > 0) await somethingHappens
      else return
    }
  } finally {
    over.abort()
  }
}

function endOf(id: string, settled: Settled): Ended {
  if (settled.status === 'completed') {
    const { output } = settled
    return {
      waited: create(WaitedSchema, { id, how: { case: 'output', value: output } }),
      length: output.length,
    }
  }
  const work = fromPlain(WorkSchema, settled.task)
  const { length } = JSON.stringify(settled.task)
  return { waited: create(WaitedSchema, { id, how: { case: 'work', value: work } }), length }
}

function missing(id: string, error: CurfewError): Ended {
  const value = create(ErrorDetailSchema, detailOf(error))
  return { waited: create(WaitedSchema, { id, how: { case: 'error', value } }), length: 0 }
}

/** How many of them go into one message: at least one. */
function fitting(ended: readonly Ended[]): number {
  let sum = 0
  const over = ended.findIndex(({ length }) => {
    sum += length
    return sum > MOST_LENGTH
  })
  return over === -1 ? ended.length : Math.max(1, over)
}
