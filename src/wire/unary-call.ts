/** A call of a unary method by hand, with the answers and errors of one by the library. */
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeFromHttpStatus, errorFromJsonBytes } from '@connectrpc/connect/protocol-connect'
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_ANSWER_BYTES, MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import { abortReason } from './abort-reason.ts'
import type { Endpoint } from './http-client.ts'
import type { PostAnswer, PostFault } from './http-post.ts'
import { PostError, post } from './http-post.ts'

export interface CallOptions {
  token: string | undefined
  clock: Clock
  timeoutMs: number
  signal?: AbortSignal
}

const CODES: Record<PostFault, Code> = {
  too_late: Code.DeadlineExceeded,
  aborted: Code.Canceled,
  cut: Code.Unavailable,
  too_large: Code.ResourceExhausted,
}

/** `message`: or its bytes. Rejects with a `ConnectError`, or with what the connection failed with. */
export function callUnary<Input extends DescMessage, Output extends DescMessage>(
  endpoint: Pick<Endpoint, 'request'>,
  method: DescMethodUnary<Input, Output>,
  message: MessageInitShape<Input> | Uint8Array,
  options: CallOptions,
): Promise<MessageShape<Output>> {
  const body = message instanceof Uint8Array ? message : encode(method.input, message)
  return post(endpoint.request, {
    ...{ path: `${method.parent.typeName}/${method.name}`, contentType: 'application/proto', body },
    ...{ maxAnswerBytes: MAX_ANSWER_BYTES, ...options },
  }).then(
    (answer) => answerOf(method.output, answer),
    (error: unknown) => {
      if (!(error instanceof PostError)) throw error
      if (options.signal?.aborted) throw abortReason(options.signal, error.message)
      throw new ConnectError(error.message, CODES[error.fault])
    },
  )
}

function encode<Input extends DescMessage>(input: Input, message: MessageInitShape<Input>): Uint8Array {
  try {
    return toBinary(input, create(input, message))
  } catch (error) {
    throw new CurfewError('invalid_request', `it cannot be sent: ${(error as Error).message}`)
  }
}

function answerOf<Output extends DescMessage>(
  output: Output,
  { status, contentType, bytes }: PostAnswer,
): MessageShape<Output> {
  if (status === 200 && contentType === 'application/proto')
    return fromBinary(output, bytes, { recursionLimit: MAX_MESSAGE_DEPTH })
  const code = status === 200 ? Code.Unknown : codeFromHttpStatus(status)
  throw errorFromJsonBytes(bytes, undefined, new ConnectError(`HTTP ${status}`, code))
}
