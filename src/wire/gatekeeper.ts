/**
 * Who may come in, for one listener: puts together where it listens (listen-rules), who calls (tokens) and what they
 * may call (access). Owns the answers to those who may not. Identity comes from the credential alone.
 */
import type { Clock } from '../core/clock.ts'
import { accessOf, mayCall } from './access.ts'
import type { AllowedHosts, ListenAddress } from './listen-rules.ts'
import { allowedHosts, checkHeaders, checkListen } from './listen-rules.ts'
import { RefusalCounts } from './refusal-counts.ts'
import type { Role } from './roles.ts'
import type { Tokens } from './tokens.ts'

export interface GatekeeperOptions {
  /** Where this listener is; one without credentials that is not private is refused with `unsafe_listen`. */
  address: ListenAddress
  tokens?: Tokens | undefined
  tls?: { readonly clientCa?: unknown } | undefined
  /** Other names it may be called by, as `name` or `name:port`. */
  hosts?: readonly string[] | undefined
  clock: Clock
}

export interface Knock {
  /** As the request is routed; its query does not count. */
  path: string
  /**
   * By lower-case name. Give `headersDistinct` of an HTTP/1 request: its `headers` hide a second Host or
   * Authorization.
   */
  headers: { readonly [name: string]: string | readonly string[] | undefined }
  /** Of the connection, never from a header. */
  remoteAddress?: string | undefined
  /** Only one that the TLS layer has verified against `clientCa`. */
  clientCertificate?: { name: string } | undefined
}

export type Admission = { type: 'admitted'; role: Role; name: string } | Refusal

export interface Refusal {
  type: 'refused'
  status: 400 | 401 | 403 | 404 | 421 | 429
  code: string
  message: string
  /** That belong to this answer. */
  headers: Record<string, string>
}

export class Gatekeeper {
  /** What whoever starts this should be told. */
  readonly warning: string | undefined
  readonly #allowed: AllowedHosts
  readonly #tokens: Tokens | undefined
  readonly #wantsCertificate: boolean
  readonly #refusals: RefusalCounts

  constructor({ address, tokens, tls, hosts, clock }: GatekeeperOptions) {
    this.warning = checkListen({ address, tokens, tls })
    this.#allowed = allowedHosts(address, hosts)
    this.#tokens = tokens && tokens.size > 0 ? tokens : undefined
    this.#wantsCertificate = Boolean(tls?.clientCa)
    this.#refusals = new RefusalCounts(clock)
  }

  admit(knock: Knock): Admission {
    const path = knock.path.split('?', 1)[0]!
    const access = accessOf(path)
    if (access === 'open') return { type: 'admitted', role: 'read-only', name: 'anyone' }

    const wrong = checkHeaders({ host: hostsOf(knock), origin: valuesOf(knock, 'origin') }, this.#allowed)
    if (wrong) return refused(wrong.status, wrong.code, wrong.message)

    const caller = this.#identify(knock)
    if (caller.type === 'refused') return caller
    if (access === undefined) return refused(404, 'unknown_path', 'there is nothing at this path')
    if (mayCall(caller.role, path)) return caller
    const message = `the role ${caller.role} may not call ${path}: it takes ${access.join(', ')}`
    return refused(403, 'permission_denied', message)
  }

  #identify(knock: Knock): Admission {
    const values = valuesOf(knock, 'authorization')
    if (values.length > 1) return refused(400, 'invalid_request', 'more than one Authorization header')
    if (this.#wantsCertificate && !knock.clientCertificate) {
      return this.#unauthenticated(knock, 'a client certificate is needed', {})
    }
    if (!this.#tokens) {
      return { type: 'admitted', role: 'admin', name: knock.clientCertificate?.name ?? 'local' }
    }
    const token = /^bearer +(\S+) *$/i.exec(values[0] ?? '')?.[1]
    const entry = token === undefined ? undefined : this.#tokens.find(token)
    if (entry) {
      return {
        type: 'admitted',
        role: entry.role,
        name: entry.name ?? `${entry.role} ${entry.hash.slice(0, 15)}`,
      }
    }
    const message = 'a token is needed that this manager knows: Authorization: Bearer TOKEN'
    return this.#unauthenticated(knock, message, { 'www-authenticate': 'Bearer' })
  }

  /**
   * Counts after the credential was looked at: nobody can guess 256 bits at any rate, and a caller with a good token
   * is not to suffer from a bad one behind the same proxy.
   */
  #unauthenticated(knock: Knock, message: string, headers: Record<string, string>): Refusal {
    const waitMs = this.#refusals.add(knock.remoteAddress)
    if (waitMs === undefined) return refused(401, 'unauthenticated', message, headers)
    return refused(
      429,
      'too_many_refusals',
      'too many requests without a valid credential from this address',
      {
        'retry-after': String(Math.ceil(waitMs / 1_000)),
      },
    )
  }
}

/** HTTP/2 calls it `:authority`; a Host beside it has to be as good. */
function hostsOf(knock: Knock): readonly string[] {
  const authorities = valuesOf(knock, ':authority')
  const hosts = valuesOf(knock, 'host')
  return authorities.length === 1 && hosts.length === 1 && authorities[0] === hosts[0]
    ? hosts
    : [...authorities, ...hosts]
}

function valuesOf(knock: Knock, name: string): readonly string[] {
  const value = Object.hasOwn(knock.headers, name) ? knock.headers[name] : undefined
  if (value === undefined) return []
  return typeof value === 'string' ? [value] : value
}

function refused(
  status: Refusal['status'],
  code: string,
  message: string,
  headers: Record<string, string> = {},
): Refusal {
  return { type: 'refused', status, code, message, headers }
}
