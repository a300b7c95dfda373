/** Dead letters over the wire: one call each, as messages. */
import type { CallOptions, Client as RpcClient } from '@connectrpc/connect'
import type {
  DeadLetter,
  DeadLetterChoice,
  DeadLettersPage,
  DeadLettersRequest,
  DeadLetterView,
} from '../wire/dead-letter-view.ts'
import type { JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { DeadLetterSchema } from '../wire/gen/curfew/v1/work_pb.ts'
import { toPlain } from '../wire/plain.ts'

type Jobs = RpcClient<typeof JobService>

export async function listLetters(
  jobs: Jobs,
  request: DeadLettersRequest,
  options: CallOptions,
): Promise<DeadLettersPage> {
  const set = Object.fromEntries(Object.entries(request).filter(([, value]) => value !== null))
  const { letters, cursor } = await jobs.listDeadLetters(set, options)
  return {
    letters: letters.map((letter) => toPlain<DeadLetterView>(DeadLetterSchema, letter)),
    cursor: cursor ?? null,
  }
}

export async function getLetter(
  jobs: Jobs,
  place: { jobId: string; itemId: string },
  options: CallOptions,
): Promise<DeadLetter> {
  const { letter } = await jobs.getDeadLetter(place, options)
  return toPlain<DeadLetter>(DeadLetterSchema, letter ?? {})
}

/** As a message: what is not said is left out. */
export function choiceMessage({ jobId, itemIds, errorType }: DeadLetterChoice) {
  return { jobId, itemIds: itemIds ?? [], ...(errorType !== null && { errorType }) }
}
