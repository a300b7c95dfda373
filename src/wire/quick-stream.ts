/**
 * Server streams of the Connect protocol by hand, for one that carries so much that the library's own costs count.
 * What is out of the ordinary (JSON, a timeout, a compressed body) is left to the library.
 */
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type {
  DescMessage,
  DescMethodServerStreaming,
  MessageInitShape,
  MessageShape,
} from '@bufbuild/protobuf'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { endStreamFlag, endStreamToJson } from '@connectrpc/connect/protocol-connect'
import { MAX_MESSAGE_DEPTH, MAX_REQUEST_BYTES } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { QuickMethod } from './quick-unary.ts'
import { toConnectError } from './wire-error.ts'

export const STREAM_TYPE = 'application/connect+proto'
/** Flags and length of a message. */
export const ENVELOPE_BYTES = 5

const LEFT_TO_THE_LIBRARY = ['connect-timeout-ms', 'connect-content-encoding']

export function envelope(flags: number, message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(ENVELOPE_BYTES + message.length)
  bytes[0] = flags
  bytes.writeUInt32BE(message.length, 1)
  bytes.set(message, ENVELOPE_BYTES)
  return bytes
}

export interface StreamContext {
  /** Nobody reads on, or the server closes. */
  signal: AbortSignal
}

export function quickStream<Input extends DescMessage, Output extends DescMessage, Message>(
  method: DescMethodServerStreaming<Input, Output>,
  run: (request: MessageShape<Input>, context: StreamContext) => AsyncIterable<Message>,
  toBytes: (message: Message) => Uint8Array,
): QuickMethod {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    answer: (request, response, { logger, shutdown }) => {
      const { headers } = request
      if (request.method !== 'POST' || headers['content-type'] !== STREAM_TYPE) return false
      if (LEFT_TO_THE_LIBRARY.some((name) => name in headers)) return false
      const gone = new AbortController()
      response.on('close', () => gone.abort())
      const signal = AbortSignal.any([gone.signal, shutdown])
      const messages = async function* () {
        for await (const message of run(await readRequest(method.input, request), { signal }))
          yield toBytes(message)
      }
      void sendAll(response, messages(), gone.signal, logger)
      return true
    },
  }
}

/** As the library writes it. */
export function asBytes<Output extends DescMessage>(output: Output) {
  return (message: MessageInitShape<Output>): Uint8Array => toBinary(output, create(output, message))
}

async function sendAll(
  response: ServerResponse,
  messages: AsyncIterable<Uint8Array>,
  gone: AbortSignal,
  logger: Logger,
): Promise<void> {
  let error: ConnectError | undefined
  try {
    response.writeHead(200, { 'content-type': STREAM_TYPE })
    for await (const message of messages) {
      if (gone.aborted) return
      if (!response.write(envelope(0, message))) await once(response, 'drain', { signal: gone })
    }
  } catch (thrown) {
    if (gone.aborted) return logger.debug({ error: String(thrown) }, 'whoever followed a stream has gone')
    error = toConnectError(thrown, logger)
  }
  const end = JSON.stringify(endStreamToJson(new Headers(), error, undefined))
  response.end(envelope(endStreamFlag, Buffer.from(end)))
}

/** The one message of the request. */
async function readRequest<Input extends DescMessage>(
  input: Input,
  request: IncomingMessage,
): Promise<MessageShape<Input>> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > MAX_REQUEST_BYTES) throw new ConnectError('the request is too large', Code.ResourceExhausted)
    chunks.push(chunk)
  }
  const body = Buffer.concat(chunks)
  if (body[0] !== 0 || body.length < ENVELOPE_BYTES || body.readUInt32BE(1) !== body.length - ENVELOPE_BYTES)
    throw new ConnectError('the request is not one whole message', Code.InvalidArgument)
  try {
    return fromBinary(input, body.subarray(ENVELOPE_BYTES), { recursionLimit: MAX_MESSAGE_DEPTH })
  } catch (error) {
    throw new ConnectError((error as Error).message, Code.InvalidArgument)
  }
}
