/** Waits for many at once: tells of each when it has settled, of those that settle together in one message. */
import { create } from '@bufbuild/protobuf'
import { CurfewError } from '../core/errors.ts'
import type { Waited } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { WaitedSchema } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { ErrorDetailSchema, WorkSchema } from '../wire/gen/curfew/v1/work_pb.ts'
import { fromPlain } from '../wire/plain.ts'
import type { Settled, TaskService } from '../wire/task-service.ts'
import { detailOf } from '../wire/wire-error.ts'

/** Of outputs in one message. */
const MOST_LENGTH = 1024 * 1024

export interface Ends {
  ends: Waited[]
  /** All have been looked at, and those that had settled by then were told of. */
  looked: boolean
}

/** The first comes when all have been looked at, whether or not one has settled. Ends when all have been told of. */
export async function* endsOf(
  service: TaskService,
  ids: ReadonlySet<string>,
  signal: AbortSignal,
): AsyncGenerator<Ends> {
  const over = new AbortController()
  const stop = AbortSignal.any([signal, over.signal])
  const ended: Waited[] = []
  let left = 0
  let failed: { error: unknown } | null = null
  let wake = () => {}
  /** Whether it is known how it ended. */
  const look = async (id: string, timeoutMs: number | null): Promise<boolean> => {
    try {
      const settled = await service.settled(id, timeoutMs, stop)
      if (settled) ended.push(waitedFor(id, settled))
      return settled !== null
    } catch (error) {
      // Of one that is not there the others are no matter.
      if (error instanceof CurfewError && error.code === 'not_found') ended.push(missing(id, error))
      else failed ??= { error }
      return true
    }
  }
  const waitFor = async (id: string) => {
    await look(id, null)
    left--
    wake()
  }
  try {
    const looks = await Promise.all(Array.from(ids, async (id) => ((await look(id, 0)) ? [] : [id])))
    const unsettled = looks.flat()
    left = unsettled.length
    for (const id of unsettled) void waitFor(id)
    for (let untold = ended.length, looked = false; !(failed || looked); ) {
      const ends = ended.splice(0, fitting(ended))
      untold -= ends.length
      looked = untold <= 0
      yield { ends, looked }
    }
    for (;;) {
      const somethingHappens = new Promise<void>((resolve) => {
        wake = resolve
      })
      if (failed) throw (failed as { error: unknown }).error
      if (ended.length > 0) yield { ends: ended.splice(0, fitting(ended)), looked: true }
      else if (left > 0) await somethingHappens
      else return
    }
  } finally {
    over.abort()
  }
}

function waitedFor(id: string, settled: Settled): Waited {
  const how =
    settled.status === 'completed'
      ? { case: 'output' as const, value: settled.output }
      : { case: 'work' as const, value: fromPlain(WorkSchema, settled.task) }
  return create(WaitedSchema, { id, how })
}

function missing(id: string, error: CurfewError): Waited {
  return create(WaitedSchema, {
    id,
    how: { case: 'error', value: create(ErrorDetailSchema, detailOf(error)) },
  })
}

/** How many of them go into one message: at least one. */
function fitting(ended: readonly Waited[]): number {
  let length = 0
  const over = ended.findIndex(({ how }) => {
    length += how.case === 'output' ? how.value.length : 0
    return length > MOST_LENGTH
  })
  return over === -1 ? ended.length : Math.max(1, over)
}
