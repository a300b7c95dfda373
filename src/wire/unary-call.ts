/** A unary request of the Connect protocol by hand, for what is sent so often that the library's own costs count. */
import type { IncomingMessage } from 'node:http'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeFromHttpStatus, errorFromJsonBytes } from '@connectrpc/connect/protocol-connect'
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_ANSWER_BYTES, MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import type { Endpoint } from './http-client.ts'

export interface CallOptions {
  token: string | undefined
  clock: Clock
  timeoutMs: number
  signal: AbortSignal
}

/** `message`: or its bytes. Rejects with a `ConnectError`, or with what the connection failed with. */
export function callUnary<Input extends DescMessage, Output extends DescMessage>(
  { request: { origin, socketPath, agent } }: Endpoint,
  method: DescMethodUnary<Input, Output>,
  message: MessageInitShape<Input> | Uint8Array,
  { token, clock, timeoutMs, signal }: CallOptions,
): Promise<MessageShape<Output>> {
  const body = message instanceof Uint8Array ? message : encode(method.input, message)
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    let answered = false
    const request = (origin.protocol === 'https:' ? httpsRequest : httpRequest)(
      new URL(`/${method.parent.typeName}/${method.name}`, origin),
      {
        ...{ method: 'POST', agent, ...(socketPath !== undefined && { socketPath }) },
        headers: {
          'content-type': 'application/proto',
          'content-length': body.length,
          'connect-protocol-version': '1',
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
        },
      },
      (response) => {
        // In the turn in which it ends: the connection may be said to be closed in the next.
        readAll(response, reject, (bytes) => {
          answered = true
          try {
            resolve(answerOf(method.output, response, bytes))
          } catch (error) {
            reject(error)
          }
        })
      },
    )
    const over = clock.setTimer(timeoutMs, () =>
      request.destroy(new ConnectError(`no answer within ${timeoutMs} ms`, Code.DeadlineExceeded)),
    )
    const abort = () => request.destroy(new ConnectError('nobody waits for it any more', Code.Canceled))
    signal.addEventListener('abort', abort, { once: true })
    request.on('error', reject)
    request.on('close', () => {
      over.cancel()
      signal.removeEventListener('abort', abort)
      // Every call comes here, and making an error costs.
      if (!answered)
        reject(new ConnectError('the connection was closed before the answer was there', Code.Unavailable))
    })
    request.end(body)
  })
}

function encode<Input extends DescMessage>(input: Input, message: MessageInitShape<Input>): Uint8Array {
  try {
    return toBinary(input, create(input, message))
  } catch (error) {
    throw new CurfewError('invalid_request', `it cannot be sent: ${(error as Error).message}`)
  }
}

function readAll(
  response: IncomingMessage,
  failed: (error: Error) => void,
  whole: (bytes: Buffer) => void,
): void {
  const chunks: Buffer[] = []
  let bytes = 0
  response.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes <= MAX_ANSWER_BYTES) chunks.push(chunk)
    else response.destroy(new ConnectError('the answer is too large', Code.ResourceExhausted))
  })
  response.on('end', () => whole(Buffer.concat(chunks)))
  response.on('error', failed)
}

function answerOf<Output extends DescMessage>(
  output: Output,
  { statusCode = 500, headers }: IncomingMessage,
  bytes: Buffer,
): MessageShape<Output> {
  if (statusCode === 200 && headers['content-type'] === 'application/proto')
    return fromBinary(output, bytes, { recursionLimit: MAX_MESSAGE_DEPTH })
  const status = statusCode === 200 ? Code.Unknown : codeFromHttpStatus(statusCode)
  throw errorFromJsonBytes(bytes, undefined, new ConnectError(`HTTP ${statusCode}`, status))
}
