/**
 * A unary request of the Connect protocol by hand, as bytes: for what is sent so often that the library's own costs
 * count, and for threads and processes that have little else in them. So it imports next to nothing but Node's.
 */
import type { Agent as HttpAgent } from 'node:http'
import { request as httpRequest } from 'node:http'
import type { Agent as HttpsAgent } from 'node:https'
import { request as httpsRequest } from 'node:https'
import type { Clock } from '../core/clock.ts'
import { onAbort } from '../core/on-abort.ts'

export interface PostTarget {
  /** Its path, if it has one, ends with a slash. */
  origin: URL | string
  socketPath: string | undefined
  agent?: HttpAgent | HttpsAgent
  /** PEM; unless the agent has it. */
  tls?: { ca?: string; cert?: string; key?: string } | undefined
}

export interface PostRequest {
  /** Below the origin: without a slash at its beginning. */
  path: string
  contentType: 'application/json' | 'application/proto'
  body: string | Uint8Array
  token: string | undefined
  clock: Clock
  timeoutMs: number
  maxAnswerBytes: number
  signal?: AbortSignal
}

export interface PostAnswer {
  status: number
  contentType: string | undefined
  bytes: Buffer
}

export type PostFault = 'too_late' | 'aborted' | 'cut' | 'too_large'

export class PostError extends Error {
  readonly fault: PostFault

  constructor(fault: PostFault, message: string) {
    super(message)
    this.fault = fault
  }
}

/** Whatever the answer is. Rejects with a `PostError`, or with what the connection failed with. */
export function post(
  { origin, socketPath, agent, tls }: PostTarget,
  { path, contentType, body, token, clock, timeoutMs, maxAnswerBytes, signal }: PostRequest,
): Promise<PostAnswer> {
  const url = new URL(path, origin)
  return new Promise((resolve, reject) => {
    const nobody = () => new PostError('aborted', 'nobody waits for it any more')
    if (signal?.aborted) return reject(nobody())
    let answered = false
    const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(
      url,
      {
        ...{ method: 'POST', ...tls, ...(agent && { agent }) },
        ...(socketPath !== undefined && { socketPath }),
        headers: {
          'content-type': contentType,
          'content-length': Buffer.byteLength(body),
          'connect-protocol-version': '1',
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
        },
      },
      (response) => {
        const { statusCode: status = 500, headers } = response
        const chunks: Buffer[] = []
        let bytes = 0
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length
          if (bytes <= maxAnswerBytes) chunks.push(chunk)
          else response.destroy(new PostError('too_large', 'the answer is too large'))
        })
        // In the turn in which it ends: the connection may be said to be closed in the next.
        response.on('end', () => {
          answered = true
          forget()
          resolve({ status, contentType: headers['content-type'], bytes: Buffer.concat(chunks) })
        })
        response.on('error', reject)
      },
    )
    const over = clock.setTimer(timeoutMs, () =>
      request.destroy(new PostError('too_late', `no answer within ${timeoutMs} ms`)),
    )
    const stopListening = signal && onAbort(signal, () => request.destroy(nobody()))
    // From the end of its answer on, its connection is not its own: an error there would be nobody's.
    const forget = () => {
      over.cancel()
      stopListening?.()
    }
    request.on('error', reject)
    request.on('close', () => {
      forget()
      // Every call comes here, and making an error costs.
      if (!answered) reject(new PostError('cut', 'the connection was closed before the answer was there'))
    })
    request.end(body)
  })
}
