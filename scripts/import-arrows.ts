// Which folder of src may import which: the table of ARCHITECTURE.md ("The house"), and nothing else.
// A test may import anything.

import path from 'node:path'
import { splitSource } from './source-text.ts'

/** Names are folders of src, and `curfew` is src/curfew.ts. */
export const arrows: Record<string, readonly string[]> = {
  core: [],
  definitions: ['core'],
  store: ['core'],
  leadership: ['core', 'store'],
  graph: ['core', 'definitions'],
  engine: ['core', 'definitions', 'store', 'leadership'],
  wire: ['core'],
  manager: ['core', 'definitions', 'store', 'leadership', 'engine', 'wire', 'graph'],
  worker: ['core', 'definitions', 'wire', 'graph'],
  mapreduce: ['core', 'definitions', 'graph', 'worker'],
  gate: ['core', 'store', 'leadership', 'engine', 'wire'],
  client: ['core', 'definitions', 'wire', 'graph'],
  insight: ['core', 'store'],
  cli: ['client', 'curfew', 'mapreduce', 'graph', 'definitions', 'core'],
  dashboard: ['wire'],
  testing: ['core'],
  listening: ['core', 'manager', 'wire'],
  working: ['core', 'wire', 'worker'],
  connecting: ['core', 'definitions', 'wire', 'client'],
  options: ['core', 'definitions', 'wire', 'worker', 'client', 'listening'],
  curfew: [
    'core',
    'listening',
    'working',
    'connecting',
    'options',
    'definitions',
    'store',
    'leadership',
    'engine',
    'wire',
    'manager',
    'worker',
    'mapreduce',
    'client',
    'insight',
    'cli',
    'testing',
  ],
}

/** `file` is relative to the repository, with slashes: src/engine/funnel.ts. */
export function findWrongImports(file: string, source: string): string[] {
  const from = partOf(file)
  if (from === undefined) return []
  const allowed = arrows[from]
  if (!allowed) return [`${file}: "${from}" is not in the table of import arrows`]

  const problems: string[] = []
  for (const specifier of importsOf(source)) {
    if (specifier.startsWith('node:')) continue
    if (!specifier.startsWith('.')) {
      if (from === 'core') problems.push(`${file}: core imports no package, but this imports "${specifier}"`)
      continue
    }
    const target = path.posix.join(path.posix.dirname(file), specifier)
    const to = partOf(target)
    if (target === 'package.json') continue // it says which version this is
    if (to === undefined) {
      problems.push(`${file}: imports "${specifier}", which is outside src`)
    } else if (to !== from && !allowed.includes(to)) {
      const may = allowed.length > 0 ? `only ${allowed.join(', ')}` : 'nothing else'
      problems.push(`${file}: ${from} may import ${may}, but this imports ${to} ("${specifier}")`)
    }
  }
  return problems
}

/** Static and dynamic imports, re-exports, and files named by `new URL(…, import.meta.url)`. */
export function importsOf(source: string): string[] {
  const { code, bare } = splitSource(source)
  const pattern =
    /(?:\bfrom|\bimport|\b(?:import|require|import\.meta\.resolve|require\.resolve|new URL)\s*\()\s*(['"`])( *)\1/dg
  const found: string[] = []
  for (const match of bare.matchAll(pattern)) {
    const [start, end] = match.indices![2]!
    const isUrl = match[0].startsWith('new URL')
    if (isUrl && !/^['"`]\s*,\s*import\.meta\.url/.test(bare.slice(end))) continue
    found.push(code.slice(start, end))
  }
  return found
}

function partOf(file: string): string | undefined {
  const [top, second, ...rest] = file.split('/')
  if (top !== 'src' || second === undefined) return undefined
  return rest.length > 0 ? second : second.replace(/\.[jt]sx?$/, '')
}
