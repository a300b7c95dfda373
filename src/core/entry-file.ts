/** Files that are started as a program or thread of their own, from source (.ts) as well as from the build (.js). */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { CurfewError } from './errors.ts'

/** The path of `name`, from the folder of the sources and without its ending. The build keeps it at the same place. */
export function entryFile(name: string): string {
  const own = new URL(import.meta.url)
  const ending = own.pathname.slice(own.pathname.lastIndexOf('.'))
  const path = fileURLToPath(new URL(`../${name}${ending}`, own))
  if (!existsSync(path)) {
    throw new CurfewError('entry_missing', `${path} is missing: it is started as a program of its own`, {
      hint: 'A bundler left it behind: keep the package curfew external.',
      fields: { path },
    })
  }
  return path
}
