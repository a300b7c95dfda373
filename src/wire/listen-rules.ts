/**
 * Where a manager may listen, and under which names it may be called there. Nobody is told apart on a Unix socket
 * (the mode of the file does that) and on loopback; anywhere else a listener without credentials is refused.
 * Host and Origin are checked so that a page somebody visits cannot reach a manager through their browser: by a name
 * of its own that it lets point here (DNS rebinding), or from another site.
 */
import { isIP } from 'node:net'
import { CurfewError } from '../core/errors.ts'
import { MAX_LISTEN_HOSTS, MAX_SOCKET_PATH_BYTES } from '../core/limits.ts'
import type { Authority } from './authority.ts'
import { formatAuthority, isLoopback, normalAddress, parseAuthority } from './authority.ts'

/** `host` is in its normal form, without brackets. Port 0 is one that the system picks. */
export type ListenAddress = { type: 'tcp'; host: string; port: number } | { type: 'unix'; path: string }

interface Origin {
  scheme: 'http' | 'https'
  host: string
  port: number
}

const DEFAULT_PORTS = { http: 80, https: 443 }
const FORM = 'write HOST:PORT, [::1]:PORT or unix:PATH'
const SHOWN = 100

/** `place` is where the text stands, for errors. */
export function parseListen(text: string, place = 'listen'): ListenAddress {
  const shown = typeof text === 'string' ? JSON.stringify(text.slice(0, SHOWN)) : String(text)
  const invalid = (what: string, hint = FORM) =>
    new CurfewError('invalid_option', `${place}: ${shown} ${what}`, { hint, fields: { place } })

  if (typeof text !== 'string') throw invalid('is not an address to listen on')
  if (text.startsWith('unix:')) {
    const path = text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '')
    if (path === '' || path.startsWith('//') || path.includes('\0')) throw invalid('names no socket file')
    if (Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES) {
      throw invalid(
        `is a longer path than a socket can have (${MAX_SOCKET_PATH_BYTES} bytes)`,
        'choose a shorter one',
      )
    }
    return { type: 'unix', path }
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) throw invalid('is a URL, not an address to listen on')
  const bare = /^:?(\d+)$/.exec(text)
  if (bare) {
    throw invalid(
      'does not say where to listen',
      `write 127.0.0.1:${bare[1]} for this machine alone, 0.0.0.0:${bare[1]} for every network`,
    )
  }
  const authority = parseAuthority(text)
  if (!authority) throw invalid('is not an address to listen on')
  if (authority.port === undefined) throw invalid('has no port')
  return { type: 'tcp', host: authority.host, port: authority.port }
}

export function formatListen(address: ListenAddress): string {
  return address.type === 'unix' ? `unix:${address.path}` : formatAuthority(address)
}

export interface ListenSafety {
  address: ListenAddress
  tokens?: { readonly size: number } | undefined
  /** `clientCa`: only callers with a certificate of it get through. */
  tls?: { readonly clientCa?: unknown } | undefined
}

/** Throws `unsafe_listen` where anybody could call; answers a warning where callers' tokens can be overheard. */
export function checkListen({ address, tokens, tls }: ListenSafety): string | undefined {
  if (address.type === 'unix' || isLoopback(address.host)) return undefined
  const place = formatListen(address)
  const hasTokens = (tokens?.size ?? 0) > 0
  if (!hasTokens && !tls?.clientCa) {
    const why = tls ? 'TLS alone does not tell who calls' : 'anybody who reaches it could run and stop work'
    throw new CurfewError('unsafe_listen', `will not listen on ${place} without tokens: ${why}`, {
      hint: 'set tokens, or TLS with a CA for client certificates, or listen on 127.0.0.1 or a Unix socket',
      fields: { address: place },
    })
  }
  return tls
    ? undefined
    : `tokens travel in the clear to ${place}: set TLS, or put a proxy with TLS before it`
}

/** Where it listens, and the other names it may be called by. */
export interface AllowedHosts {
  address: ListenAddress
  hosts: readonly Authority[]
}

/** `hosts`: a name or address each; with a port only that port is meant. */
export function allowedHosts(
  address: ListenAddress,
  hosts: readonly string[] = [],
  place = 'hosts',
): AllowedHosts {
  const hint = 'write names or addresses, such as curfew.example.com, 10.0.0.5:8080 or [fd00::1]'
  const invalid = (here: string, what: string) =>
    new CurfewError('invalid_option', `${here} ${what}`, { hint, fields: { place: here } })
  if (!Array.isArray(hosts)) throw invalid(place, 'must be a list')
  if (hosts.length > MAX_LISTEN_HOSTS) throw invalid(place, `has more than ${MAX_LISTEN_HOSTS} entries`)
  const authorities = hosts.map((text: unknown, index) => {
    const bare = typeof text === 'string' ? normalAddress(text) : undefined
    if (bare !== undefined) return { host: bare, port: undefined }
    const authority = typeof text === 'string' ? parseAuthority(text) : undefined
    if (!authority) throw invalid(`${place}[${index}]`, 'is not a host')
    return authority
  })
  return { address, hosts: authorities }
}

export interface HeaderRefusal {
  status: 400 | 403 | 421
  code: 'invalid_request' | 'wrong_host' | 'wrong_origin'
  message: string
}

/**
 * All values of both headers: a second Host is a sign that a proxy and this process may not mean the same one.
 * A Host may have any port (tunnels and port forwards change it); an Origin has to be that of this very request, or
 * of one of the configured hosts: another port of the same machine is somebody else's page.
 */
export function checkHeaders(
  headers: { host: readonly string[]; origin: readonly string[] },
  allowed: AllowedHosts,
): HeaderRefusal | undefined {
  if (allowed.address.type === 'unix') return undefined
  const [hostText, ...otherHosts] = headers.host
  const [originText, ...otherOrigins] = headers.origin
  if (hostText === undefined || otherHosts.length > 0) {
    return { status: 400, code: 'invalid_request', message: 'one Host header is needed' }
  }
  if (otherOrigins.length > 0) {
    return { status: 400, code: 'invalid_request', message: 'more than one Origin header' }
  }
  const host = parseAuthority(hostText)
  if (!host) return { status: 400, code: 'invalid_request', message: 'the Host header is not a host' }
  if (!isOwnHost(host.host, allowed.address) && !isConfigured(host, allowed.hosts)) {
    const message = `this manager is not called ${formatAuthority(host)}: if it should be, add that to its hosts`
    return { status: 421, code: 'wrong_host', message }
  }
  if (originText === undefined) return undefined
  const origin = parseOrigin(originText)
  if (origin && (isSameOrigin(origin, host) || isConfigured(origin, allowed.hosts))) return undefined
  const from = origin ? originText : 'such an origin'
  const message = `pages of ${from} may not call this manager: if they should, add their host to its hosts`
  return { status: 403, code: 'wrong_origin', message }
}

/**
 * On every network it has as many addresses as the machine: an address in a Host header cannot be made to point
 * elsewhere, so any is as good as the other.
 */
function isOwnHost(host: string, address: { host: string }): boolean {
  if (isLoopback(address.host)) return isLoopback(host)
  if (address.host === '0.0.0.0' || address.host === '::') return isIP(host) !== 0 || isLoopback(host)
  return host === address.host
}

/** Without a port, a Host means that of its scheme, which a proxy may have taken away. */
function isConfigured({ host, port }: Authority, hosts: readonly Authority[]): boolean {
  return hosts.some(
    (entry) =>
      entry.host === host &&
      (entry.port === undefined ||
        (port === undefined ? Object.values(DEFAULT_PORTS).includes(entry.port) : entry.port === port)),
  )
}

function isSameOrigin(origin: Origin, { host, port }: Authority): boolean {
  return origin.host === host && origin.port === (port ?? DEFAULT_PORTS[origin.scheme])
}

/** Undefined also for `null`, the origin of pages without one, and for those of browser extensions. */
function parseOrigin(text: string): Origin | undefined {
  const match = /^(https?):\/\/(.+)$/i.exec(text)
  const authority = match ? parseAuthority(match[2]!) : undefined
  if (!match || !authority) return undefined
  const scheme = match[1]!.toLowerCase() as Origin['scheme']
  return { scheme, host: authority.host, port: authority.port ?? DEFAULT_PORTS[scheme] }
}
