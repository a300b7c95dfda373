/** As `engines` of the package says: the first with a SQLite that has no known fault. */
export const NODE_NEEDED = 'Node 22 from 22.22.3 on, or 24.15 and newer'

export function isSupportedNode(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number.parseFloat)
  if (major === 22) return minor > 22 || (minor === 22 && patch >= 3)
  return major > 24 || (major === 24 && minor >= 15)
}
