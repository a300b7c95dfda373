/** What stands in a file of a run, which nobody else writes. */
import { CurfewError } from '../core/errors.ts'

export function parseStored<T>(file: string, text: string): T {
  try {
    return JSON.parse(text) as T
  } catch (error) {
    const message = `${file} is not as it was written: ${(error as Error).message}`
    throw new CurfewError('broken_run', message, { fields: { file }, cause: error })
  }
}
