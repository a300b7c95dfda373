/** One beat, by hand: it is sent from a thread that has little else in it. */
import { Agent as HttpAgent, request as httpRequest } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Clock } from '../core/clock.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'

export interface BeatTarget {
  href: string
  socketPath: string | undefined
  workerId: string
  session: number
  token: string | undefined
  tls: { ca?: string; cert?: string; key?: string } | undefined
  draining: boolean
}

export interface SentBeat {
  /** Monotonic, before it was sent. */
  sentAt: number
  unknown: boolean
  leaseAgeMs: number
}

/** Slower than this it is as good as lost: the next one is due. */
const ANSWER_WITHIN_MS = 2_000
const PATH = '/curfew.v1.WorkerService/Beat'
const MOST_ANSWERED = 10_000

/** Hundreds of workers may share a process, and one that does not answer must not hold up the others. */
const MOST_SOCKETS = 16
const plainAgent = new HttpAgent({ keepAlive: true, maxSockets: MOST_SOCKETS })
const secureAgents = new Map<string, HttpsAgent>()

/**
 * `lease` holds when it was renewed, and the last renewal that none followed in time. The second is for whoever looks
 * only after that: a process that was stopped and woke up may be renewed before it has looked.
 */
export function renewLease(lease: Float64Array, at: number): void {
  const renewedAt = lease[0] as number
  if (at <= renewedAt) return
  if (at - renewedAt > ORPHAN_GRACE_MS) lease[1] = renewedAt
  lease[0] = at
}

/** Null: nobody answered, or not with a beat. */
export function sendBeat(target: BeatTarget, clock: Clock): Promise<SentBeat | null> {
  const { href, socketPath, workerId, session, token, tls, draining } = target
  const url = new URL(PATH, href)
  const sentAt = clock.monotonic()
  return new Promise((resolve) => {
    const secure = url.protocol === 'https:'
    const request = (secure ? httpsRequest : httpRequest)(
      url,
      {
        method: 'POST',
        agent: secure ? secureAgent(tls) : plainAgent,
        ...(socketPath !== undefined && { socketPath }),
        timeout: ANSWER_WITHIN_MS,
        headers: {
          'content-type': 'application/json',
          'connect-protocol-version': '1',
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
        },
      },
      (response) => {
        let text = ''
        response.setEncoding('utf8')
        response.on('data', (chunk: string) => {
          text += chunk
          if (text.length > MOST_ANSWERED) request.destroy()
        })
        response.on('end', () => resolve(response.statusCode === 200 ? read(text, sentAt) : null))
        response.on('error', () => resolve(null))
      },
    )
    const over = clock.setTimer(ANSWER_WITHIN_MS, () => request.destroy())
    request.on('timeout', () => request.destroy())
    request.on('error', () => resolve(null))
    request.on('close', () => {
      over.cancel()
      resolve(null)
    })
    request.end(JSON.stringify({ workerId, session, draining }))
  })
}

function read(text: string, sentAt: number): SentBeat | null {
  try {
    const { unknown = false, leaseAgeMs = 0 } = JSON.parse(text) as Partial<SentBeat>
    return { sentAt, unknown, leaseAgeMs }
  } catch {
    return null // not from a manager
  }
}

function secureAgent(tls: BeatTarget['tls']): HttpsAgent {
  const key = JSON.stringify(tls ?? null)
  const agent = secureAgents.get(key) ?? new HttpsAgent({ keepAlive: true, maxSockets: MOST_SOCKETS, ...tls })
  secureAgents.set(key, agent)
  return agent
}
