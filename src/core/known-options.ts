/** Options that nobody knows are refused: a limit that is misspelt would be none. */
import { CurfewError } from './errors.ts'

export function checkKnown(at: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null)
    throw new CurfewError('invalid_option', `${at}: its options must be an object`)
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue
    const there = known.length === 1 ? 'there is' : 'there are'
    throw new CurfewError('invalid_option', `${at}: '${key}' is not an option; ${there} ${known.join(', ')}`)
  }
}
