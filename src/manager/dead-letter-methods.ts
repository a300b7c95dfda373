/** The methods of the job service about dead letters. What comes in is checked here. */
import type { ServiceImpl } from '@connectrpc/connect'
import { DEAD_LETTER_ERRORS, DEAD_LETTER_STATES } from '../core/dead-letter.ts'
import { MAX_NAME_LENGTH, MAX_NAMED_ITEMS } from '../core/limits.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { DeadLetterChoice, DeadLetterService } from '../wire/dead-letter-view.ts'
import type { DeadLetterChoice as ChoiceMessage, JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { DeadLetterSchema } from '../wire/gen/curfew/v1/work_pb.ts'
import { fromPlain } from '../wire/plain.ts'
import { invalid, nameOf, oneOf, pageLimit } from './request-check.ts'

type Methods = Pick<
  ServiceImpl<typeof JobService>,
  'listDeadLetters' | 'getDeadLetter' | 'discardDeadLetters' | 'claimDeadLetters'
>

export function deadLetterMethods(service: DeadLetterService): Methods {
  return {
    async listDeadLetters(request) {
      const { letters, cursor } = await service.deadLetters({
        ...{ jobId: nameOf('job_id', request.jobId), retryId: nameOf('retry_id', request.retryId) },
        state: oneOf('state', request.state, DEAD_LETTER_STATES),
        errorType: oneOf('error_type', request.errorType, DEAD_LETTER_ERRORS),
        cursor: nameOf('cursor', request.cursor, 2 * MAX_NAME_LENGTH + 1),
        ...{ bodies: request.bodies, limit: pageLimit(request.limit) },
      })
      return {
        letters: letters.map((letter) => fromPlain(DeadLetterSchema, letter)),
        ...(cursor !== null && { cursor }),
      }
    },
    async getDeadLetter({ jobId, itemId }) {
      const letter = await service.deadLetter(checkName('job_id', jobId), checkName('item_id', itemId))
      return { letter: fromPlain(DeadLetterSchema, letter) }
    },
    async discardDeadLetters({ choice }) {
      return { count: await service.discardDeadLetters(choiceOf(choice)) }
    },
    async claimDeadLetters({ choice, retryId }) {
      return { count: await service.claimDeadLetters(choiceOf(choice), checkName('retry_id', retryId)) }
    },
  }
}

function choiceOf(choice: ChoiceMessage | undefined): DeadLetterChoice {
  if (!choice) throw invalid('choice is missing: say of which job')
  const { jobId, itemIds, errorType } = choice
  if (itemIds.length > MAX_NAMED_ITEMS) throw invalid(`item_ids: at most ${MAX_NAMED_ITEMS} at a time`)
  return {
    jobId: checkName('job_id', jobId),
    itemIds: itemIds.length === 0 ? null : itemIds.map((id, i) => checkName(`item_ids[${i}]`, id)),
    errorType: oneOf('error_type', errorType, DEAD_LETTER_ERRORS),
  }
}
