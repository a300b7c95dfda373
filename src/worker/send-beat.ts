/** One beat, sent from a thread that has little else in it. */
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Clock } from '../core/clock.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'
import { post } from '../wire/http-post.ts'

export interface BeatTarget {
  href: string
  socketPath: string | undefined
  workerId: string
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

/** A later answer renews nothing. Until then it may: who gave up sooner would wait in line for another connection. */
const ANSWER_WITHIN_MS = ORPHAN_GRACE_MS
const MAX_ANSWER_BYTES = 10_000

/** Hundreds of workers may share a process, and one that does not answer must not hold up the others. */
const MOST_SOCKETS = 16
const plainAgent = new HttpAgent({ keepAlive: true, maxSockets: MOST_SOCKETS })
const secureAgents = new Map<string, HttpsAgent>()

/** Null: nobody answered, or not with a beat. */
export async function sendBeat(target: BeatTarget, clock: Clock): Promise<SentBeat | null> {
  const { href, socketPath, workerId, token, tls, draining } = target
  const agent = href.startsWith('https:') ? secureAgent(tls) : plainAgent
  const sentAt = clock.monotonic()
  try {
    const { status, bytes } = await post(
      { origin: href, socketPath, agent },
      {
        ...{ path: 'curfew.v1.WorkerService/Beat', contentType: 'application/json', token },
        body: JSON.stringify({ workerId, draining }),
        ...{ clock, timeoutMs: ANSWER_WITHIN_MS, maxAnswerBytes: MAX_ANSWER_BYTES },
      },
    )
    if (status !== 200) return null
    const { unknown = false, leaseAgeMs = 0 } = JSON.parse(bytes.toString()) as Partial<SentBeat>
    return { sentAt, unknown, leaseAgeMs }
  } catch {
    return null // nobody there, or no manager
  }
}

function secureAgent(tls: BeatTarget['tls']): HttpsAgent {
  const key = JSON.stringify(tls ?? null)
  const agent = secureAgents.get(key) ?? new HttpsAgent({ keepAlive: true, maxSockets: MOST_SOCKETS, ...tls })
  secureAgents.set(key, agent)
  return agent
}
