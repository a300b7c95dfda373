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

/** The first is empty: whoever asked knows that somebody listens. Ends when all have been told of. */
export async function* endsOf(
  service: TaskService,
  ids: ReadonlySet<string>,
  signal: AbortSignal,
): AsyncGenerator<Waited[]> {
  const over = new AbortController()
  const stop = AbortSignal.any([signal, over.signal])
  const ended: Waited[] = []
  let left = ids.size
  let failed: { error: unknown } | null = null
  let wake = () => {}
  const waitFor = async (id: string) => {
    try {
      const settled = await service.settled(id, null, stop)
      if (settled) ended.push(waitedFor(id, settled))
    } catch (error) {
      // Of one that is not there the others are no matter.
      if (error instanceof CurfewError && error.code === 'not_found') ended.push(missing(id, error))
      else failed ??= { error }
    }
    left--
    wake()
  }
  try {
    yield []
    for (const id of ids) void waitFor(id)
    for (;;) {
      const somethingHappens = new Promise<void>((resolve) => {
        wake = resolve
      })
      if (failed) throw (failed as { error: unknown }).error
      if (ended.length > 0) yield ended.splice(0, fitting(ended))
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
