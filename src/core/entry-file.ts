/** Files that are started as a program or thread of their own, from source (.ts) as well as from the build (.js). */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { CurfewError } from './errors.ts'

/** The path of `name` (without its ending) beside the caller, with the ending the caller's own file has. */
export function entryFile(name: string, callerUrl: string): string {
  const url = new URL(callerUrl)
  const path = fileURLToPath(new URL(`${name}${url.pathname.slice(url.pathname.lastIndexOf('.'))}`, url))
  if (!existsSync(path)) {
    throw new CurfewError('entry_missing', `${path} is missing: it is started as a program of its own`, {
      hint: 'A bundler left it behind: keep the package curfew external.',
      fields: { path },
    })
  }
  return path
}
