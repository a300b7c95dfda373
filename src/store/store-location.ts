/** `postgres://…` is a server, `:memory:` is memory, anything else is a SQLite file. */
import { CurfewError } from '../core/errors.ts'

export type StoreLocation = { dialect: 'postgres'; url: string } | { dialect: 'sqlite'; file: string }

export function storeLocation(store: string): StoreLocation {
  if (typeof store !== 'string' || store.trim() === '') {
    throw new CurfewError('invalid_option', 'store must be a file name, :memory: or a postgres:// URL')
  }
  if (/^postgres(ql)?:\/\//.test(store)) return { dialect: 'postgres', url: store }
  const scheme = /^([a-z][a-z0-9+.-]+):\/\//i.exec(store)
  if (scheme) {
    throw new CurfewError(
      'invalid_option',
      `store: '${scheme[1]}' is not known: a file name, :memory: or postgres://…`,
    )
  }
  return { dialect: 'sqlite', file: store }
}
