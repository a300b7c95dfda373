/** Addresses as people and logs may see them. */
const MASKED = '***'

/** Without what is secret in it. */
export function maskUrl(url: string): string {
  return (
    url
      // Up to the last @: a password that was not escaped may hold anything.
      .replace(/^([a-z][a-z0-9+.-]*:\/\/[^/?#@:]*):.*@/is, `$1:${MASKED}@`)
      .replace(/([?&](?:password|sslpassword|token)=)[^&#]*/gi, `$1${MASKED}`)
  )
}
