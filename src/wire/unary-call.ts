/** A unary request of the Connect protocol by hand, for what is sent so often that the library's own costs count. */
import type { IncomingMessage } from 'node:http'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeFromHttpStatus, errorFromJsonBytes } from '@connectrpc/connect/protocol-connect'
import type { Clock } from '../core/clock.ts'
import { MAX_ANSWER_BYTES, MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import type { Endpoint } from './http-client.ts'

export interface CallOptions {
  token: string | undefined
  clock: Clock
  timeoutMs: number
  signal: AbortSignal
}

/** Rejects with a `ConnectError`, or with what the connection failed with. */
export function callUnary<Input extends DescMessage, Output extends DescMessage>(
  { request: { origin, socketPath, agent } }: Endpoint,
  method: DescMethodUnary<Input, Output>,
  message: MessageInitShape<Input>,
  { token, clock, timeoutMs, signal }: CallOptions,
): Promise<MessageShape<Output>> {
  const body = toBinary(method.input, create(method.input, message))
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
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
        readAll(response).then((bytes) => resolve(answerOf(method.output, response, bytes)), reject)
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
      reject(new ConnectError('the connection was closed before the answer was there', Code.Unavailable))
    })
    request.end(body)
  })
}

function readAll(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  return new Promise((resolve, reject) => {
    response.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= MAX_ANSWER_BYTES) chunks.push(chunk)
      else response.destroy(new ConnectError('the answer is too large', Code.ResourceExhausted))
    })
    response.on('end', () => resolve(Buffer.concat(chunks)))
    response.on('error', reject)
  })
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
