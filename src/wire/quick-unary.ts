/**
 * Unary methods of the Connect protocol by hand, for those that are called so often that the library's own costs
 * count. What is out of the ordinary (a timeout, a compressed body, one of unknown length) is left to the library.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import { create, fromBinary, fromJsonString, toBinary, toJsonString } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeToHttpStatus, errorToJsonBytes } from '@connectrpc/connect/protocol-connect'
import { MAX_MESSAGE_DEPTH, MAX_REQUEST_BYTES } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { toConnectError } from './wire-error.ts'

export interface QuickMethod {
  path: string
  /** False: it is none of the ordinary ones. `shutdown`: the server closes. */
  answer(
    request: IncomingMessage,
    response: ServerResponse,
    server: { logger: Logger; shutdown: AbortSignal },
  ): boolean
}

const LEFT_TO_THE_LIBRARY = ['connect-timeout-ms', 'content-encoding']
const DEPTH = { recursionLimit: MAX_MESSAGE_DEPTH }

/** How a request is read: by hand, or what the library makes of it. */
export interface RequestReader<Input extends DescMessage, Request> {
  fromBytes(body: Buffer): Request
  fromMessage(message: MessageShape<Input>): Request
}

export function quickMethod<Input extends DescMessage, Output extends DescMessage, Request>(
  method: DescMethodUnary<Input, Output>,
  run: (request: Request) => Promise<MessageInitShape<Output>>,
  reader: RequestReader<Input, Request>,
): QuickMethod {
  const { input, output } = method
  const answers = async (body: Buffer, json: boolean): Promise<Uint8Array> => {
    const answer = create(output, await run(read(input, reader, body, json)))
    return json
      ? Buffer.from(toJsonString(output, answer, { alwaysEmitImplicit: true }))
      : toBinary(output, answer)
  }
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    answer: (request, response, { logger }) => {
      const { headers } = request
      const type = headers['content-type']
      const json = type === 'application/json'
      const length = Number(headers['content-length'] ?? Number.NaN)
      if (request.method !== 'POST' || (type !== 'application/proto' && !json)) return false
      if (!(length <= MAX_REQUEST_BYTES) || LEFT_TO_THE_LIBRARY.some((name) => name in headers)) return false
      const send = (status: number, contentType: string, body: Uint8Array) => {
        if (response.destroyed) return // whoever asked has gone
        response.writeHead(status, { 'content-type': contentType, 'content-length': body.length }).end(body)
      }
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('error', (error) => logger.debug({ error: error.message }, 'a request did not arrive whole'))
      request.on('end', () => {
        const body = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)
        answers(body, json).then(
          (bytes) => send(200, type, bytes),
          (thrown: unknown) => {
            const error = toConnectError(thrown, logger)
            send(codeToHttpStatus(error.code), 'application/json', errorToJsonBytes(error, undefined))
          },
        )
      })
      return true
    },
  }
}

/** As the library reads it. */
export function asMessage<Input extends DescMessage>(
  input: Input,
): RequestReader<Input, MessageShape<Input>> {
  return { fromBytes: (body) => fromBinary(input, body, DEPTH), fromMessage: (message) => message }
}

function read<Input extends DescMessage, Request>(
  input: Input,
  { fromBytes, fromMessage }: RequestReader<Input, Request>,
  body: Buffer,
  json: boolean,
): Request {
  try {
    if (!json) return fromBytes(body)
    return fromMessage(fromJsonString(input, body.toString('utf8'), { ignoreUnknownFields: true, ...DEPTH }))
  } catch (error) {
    throw new ConnectError((error as Error).message, Code.InvalidArgument)
  }
}
