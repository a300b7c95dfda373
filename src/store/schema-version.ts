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
