import { MIGRATIONS } from './migrations.ts'
import { StoreError } from './store-error.ts'

export function refuseNewerSchema(version: number, where: string): void {
  if (version <= MIGRATIONS.length) return
  throw new StoreError(
    'store_refused',
    `${where} has schema version ${version}; this version of curfew knows up to ${MIGRATIONS.length}`,
    { hint: 'It was opened by a newer curfew. Upgrade this one.' },
  )
}

/** For whoever only reads, and so cannot bring it up to date. */
export function refuseOtherSchema(version: number, where: string): void {
  refuseNewerSchema(version, where)
  if (version === MIGRATIONS.length) return
  throw new StoreError(
    'store_refused',
    `${where} has schema version ${version}; this version of curfew reads ${MIGRATIONS.length}`,
    {
      hint: 'It was last opened by an older curfew. Work on it once with this one, which brings it up to date, or read it with that one.',
    },
  )
}
