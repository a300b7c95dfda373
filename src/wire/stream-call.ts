/** A server stream of the Connect protocol by hand, for one that carries so much that the library's own costs count. */
import type { IncomingMessage } from 'node:http'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { DescMessage, DescMethodServerStreaming, MessageInitShape } from '@bufbuild/protobuf'
import { create, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import {
  codeFromHttpStatus,
  endStreamFlag,
  endStreamFromJson,
  errorFromJsonBytes,
} from '@connectrpc/connect/protocol-connect'
import { MAX_ANSWER_BYTES } from '../core/limits.ts'
import { onAbort } from '../core/on-abort.ts'
import { abortReason } from './abort-reason.ts'
import type { Endpoint } from './http-client.ts'
import { ENVELOPE_BYTES, envelope, STREAM_TYPE } from './quick-stream.ts'

/** Throws a `ConnectError`, or what the connection failed with. */
export async function* callStream<Input extends DescMessage, Output extends DescMessage, Message>(
  { request: { origin, socketPath, agent } }: Pick<Endpoint, 'request'>,
  method: DescMethodServerStreaming<Input, Output>,
  message: MessageInitShape<Input>,
  {
    token,
    signal,
    fromBytes,
    onBytes = () => undefined,
  }: {
    token: string | undefined
    signal?: AbortSignal
    fromBytes(bytes: Buffer): Message
    /** Also of a message that is not whole yet. */
    onBytes?(): void
  },
): AsyncGenerator<Message> {
  const body = envelope(0, toBinary(method.input, create(method.input, message)))
  let forget: (() => void) | undefined
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const request = (origin.protocol === 'https:' ? httpsRequest : httpRequest)(
        new URL(`${method.parent.typeName}/${method.name}`, origin),
        {
          ...{ method: 'POST', agent, ...(socketPath !== undefined && { socketPath }) },
          headers: {
            'content-type': STREAM_TYPE,
            'content-length': body.length,
            'connect-protocol-version': '1',
            ...(token !== undefined && { authorization: `Bearer ${token}` }),
          },
        },
        resolve,
      )
      // Without an error: where the stream has just ended nobody would hear it.
      forget = signal && onAbort(signal, () => request.destroy())
      request.on('error', reject)
      if (signal?.aborted) request.destroy()
      else request.end(body)
    })
    const { statusCode = 500, headers } = response
    if (statusCode !== 200 || headers['content-type'] !== STREAM_TYPE) throw await refusal(response)
    let isOver = false
    for await (const { flags, bytes } of envelopes(response, onBytes)) {
      if (flags === 0) yield fromBytes(bytes)
      else if (flags === endStreamFlag) {
        const { error } = endStreamFromJson(bytes)
        if (error) throw error
        isOver = true // read to its end: its connection serves again
      } else throw new ConnectError(`a message has the flags ${flags}`, Code.Internal)
    }
    if (!isOver) throw new ConnectError('the stream was cut', Code.Unavailable)
  } catch (error) {
    throw signal?.aborted ? abortReason(signal, 'nobody reads it any more') : error
  } finally {
    forget?.()
  }
}

async function* envelopes(
  response: IncomingMessage,
  onBytes: () => void,
): AsyncGenerator<{ flags: number; bytes: Buffer }> {
  let chunks: Buffer[] = []
  let size = 0
  let needed = ENVELOPE_BYTES
  for await (const chunk of response as AsyncIterable<Buffer>) {
    onBytes()
    chunks.push(chunk)
    size += chunk.length
    if (size < needed) continue
    let rest = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    for (;;) {
      needed = rest.length < ENVELOPE_BYTES ? ENVELOPE_BYTES : ENVELOPE_BYTES + rest.readUInt32BE(1)
      if (needed > MAX_ANSWER_BYTES) throw new ConnectError('a message is too large', Code.ResourceExhausted)
      if (rest.length < needed) break
      yield { flags: rest[0] as number, bytes: rest.subarray(ENVELOPE_BYTES, needed) }
      rest = rest.subarray(needed)
    }
    chunks = [rest]
    size = rest.length
  }
}

/** Somebody else may have answered: a proxy, a page to log in. */
async function refusal(response: IncomingMessage): Promise<ConnectError> {
  const { statusCode = 500 } = response
  const status = statusCode === 200 ? Code.Unknown : codeFromHttpStatus(statusCode)
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > MAX_REFUSAL_BYTES) break
    chunks.push(chunk)
  }
  return errorFromJsonBytes(Buffer.concat(chunks), undefined, new ConnectError(`HTTP ${statusCode}`, status))
}

const MAX_REFUSAL_BYTES = 64 * 1024
