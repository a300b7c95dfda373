/** The revisions of the wire protocol this release speaks. A worker and a manager take the highest both know. */
import { readFileSync } from 'node:fs'
import { CurfewError } from '../core/errors.ts'

export const PROTOCOL_MIN = 1
export const PROTOCOL_MAX = 1

/** Of this package. */
export const VERSION: string = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version

export interface Spoken {
  version: string
  min: number
  max: number
}

export const OURS: Spoken = { version: VERSION, min: PROTOCOL_MIN, max: PROTOCOL_MAX }

export function negotiate(worker: Spoken, manager: Spoken): number {
  const protocol = Math.min(worker.max, manager.max)
  if (protocol >= Math.max(worker.min, manager.min)) return protocol
  const older = worker.max < manager.min ? 'worker' : 'manager'
  throw new CurfewError(
    'version_mismatch',
    `the worker (Curfew ${worker.version}) speaks protocol ${range(worker)}, the manager (${manager.version}) ${range(manager)}`,
    { hint: `Update the ${older}.`, fields: { worker, manager } },
  )
}

function range({ min, max }: Spoken): string {
  return min === max ? `${max}` : `${min} to ${max}`
}
