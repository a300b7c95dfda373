/**
 * `host` and `host:port` as they stand in configuration, in Host headers and in origins, in one normal form: lower
 * case, no trailing dot, no brackets, IPv6 in its shortest spelling, IPv4 inside IPv6 as IPv4.
 */
import { BlockList, isIP, isIPv4, SocketAddress } from 'node:net'
import { MAX_AUTHORITY_LENGTH } from '../core/limits.ts'

export interface Authority {
  host: string
  port: number | undefined
}

const LOOPBACK = new BlockList()
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4')
LOOPBACK.addAddress('::1', 'ipv6')

/** Some letters become plain ones in lower case, such as the sign for Kelvin. */
const NOT_ASCII = /[^\x21-\x7e]/
const NAME = /^[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?$/
/** An old spelling of an IPv4 address, such as 127.1 or 0x7f.0.0.1: some take it for an address, others for a name. */
const NUMERIC_END = /(?:^|\.)(?:\d+|0x[0-9a-f]*)$/

/** Undefined: it is neither a name nor an address. */
export function parseAuthority(text: string): Authority | undefined {
  if (text.length > MAX_AUTHORITY_LENGTH || NOT_ASCII.test(text)) return undefined
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::(\d{1,5}))?$/.exec(text)
  if (!match) return undefined
  const host = match[1] === undefined ? normalName(match[2]!) : normalAddress(match[1], 6)
  const port = match[3] === undefined ? undefined : Number(match[3])
  if (host === undefined || (port !== undefined && port > 65_535)) return undefined
  return { host, port }
}

/** Undefined: not an address, or one with a zone, which has no meaning on another machine. */
export function normalAddress(text: string, family: 4 | 6 | undefined = undefined): string | undefined {
  const found = isIP(text)
  if (found === 0 || text.includes('%') || (family !== undefined && found !== family)) return undefined
  if (found === 4) return text
  const { address } = new SocketAddress({ address: text, family: 'ipv6' })
  const inner = address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : ''
  return isIPv4(inner) ? inner : address
}

/** Of a host in its normal form. A name other than localhost may be resolved to anything. */
export function isLoopback(host: string): boolean {
  const family = isIP(host)
  if (family === 0) return host === 'localhost'
  return LOOPBACK.check(host, family === 4 ? 'ipv4' : 'ipv6')
}

export function formatAuthority({ host, port }: Authority): string {
  const name = host.includes(':') ? `[${host}]` : host
  return port === undefined ? name : `${name}:${port}`
}

function normalName(text: string): string | undefined {
  const name = text.toLowerCase().replace(/\.$/, '')
  if (isIPv4(name)) return name
  return NAME.test(name) && !name.includes('..') && !NUMERIC_END.test(name) ? name : undefined
}
