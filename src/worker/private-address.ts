/** Which addresses are not of the public internet: loopback, private, link-local, documentation and the like. */
import { BlockList, isIP } from 'node:net'

/** RFC 6890 and the registries that follow it. */
const SPECIAL = new BlockList()
for (const [address, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const)
  SPECIAL.addSubnet(address, bits, 'ipv4')
// 2001::/23 and 2002::/16 carry IPv4 addresses inside them.
for (const [address, bits] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const)
  SPECIAL.addSubnet(address, bits, 'ipv6')

/** All of IPv6 that is given out to the public; what is outside is local, or IPv4 in another form. */
const GLOBAL = new BlockList()
GLOBAL.addSubnet('2000::', 3, 'ipv6')

/** What is not an address is not a public one. */
export function isPrivate(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return SPECIAL.check(address, 'ipv4')
    case 6:
      return !GLOBAL.check(address, 'ipv6') || SPECIAL.check(address, 'ipv6')
    default:
      return true
  }
}
