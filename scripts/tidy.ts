// The rules of this repository that no linter knows, kept by a program and not by memory.
// `npm run check` runs it as a program; tidy.test.ts shows that each rule can fail.

import { globSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { findWrongImports } from './import-arrows.ts'
import { splitSource } from './source-text.ts'

const maxLines = 450
const clockFile = 'src/core/system-clock.ts'
/** Written by `npm run proto`; proto.test.ts sees to it that nobody else does. */
const generated = 'src/wire/gen'

/** Every problem of the repository in this folder, as `file:line: what`. */
export function checkRepository(root: string): string[] {
  const files = globSync(['{src,bench,examples,sim,faults,scripts}/**/*.{ts,tsx}', '*.ts'], {
    cwd: root,
    exclude: ['**/node_modules/**', 'dist/**', `${generated}/**`],
  }).map((file) => file.split(path.sep).join('/'))
  if (!files.some((file) => file.startsWith('src/'))) return [`${root}: found no sources to check`]
  return [
    ...files.toSorted().flatMap((file) => checkFile(file, readFileSync(path.join(root, file), 'utf8'))),
    ...findForeignPackages(readFileSync(path.join(root, 'package-lock.json'), 'utf8')),
  ]
}

export function checkFile(file: string, source: string): string[] {
  return [
    ...(isTest(file) ? [] : findWrongImports(file, source)),
    ...(isTest(file) || !file.startsWith('src/') || file.startsWith('src/testing/') || file === clockFile
      ? []
      : findAmbientTime(file, source)),
    ...findEmptyCatches(file, source),
    ...(isTest(file) ? [...findUnrunTests(file, source), ...findIdlePatterns(file, source)] : []),
    ...findUnfinished(file, source),
    ...findLongFile(file, source),
    ...findBadName(file),
  ]
}

/** Time, timers and randomness are constructor arguments; system-clock.ts alone asks the machine for them. */
export function findAmbientTime(file: string, source: string): string[] {
  const { code, bare } = splitSource(source)
  const calls =
    /\bDate\.now\b|\bnew Date(?!\s*\(\s*[^\s)])|\b(?:setTimeout|setInterval|setImmediate)\s*\(|\bMath\.random\b|\b(?:randomUUID|randomBytes|randomInt|getRandomValues)\s*\(|\bperformance\.now\b|\bprocess\.hrtime\b/g
  const modules = /(['"])(?:node:)?timers(?:\/promises)?\1/g
  return [
    ...at(file, bare, calls, (text) => `"${text}" is only for ${clockFile}; take a clock as an argument`),
    ...at(file, code, modules, (text) => `${text} is only for ${clockFile}; take a clock as an argument`),
  ]
}

/** A comment does not fill a catch: what is ignored is told apart in code, so that anything else surfaces. */
export function findEmptyCatches(file: string, source: string): string[] {
  const { bare } = splitSource(source)
  const block = /\bcatch\s*(?:\([^)]*\)\s*)?\{\s*\}/g
  const callback = /\.catch\s*\(\s*(?:async\s*)?\([^)]*\)\s*=>\s*(?:\{\s*\}|undefined|void 0)\s*,?\s*\)/g
  return [block, callback].flatMap((pattern) => at(file, bare, pattern, () => 'empty catch'))
}

export function findUnrunTests(file: string, source: string): string[] {
  const pattern = /\.(?:only|skip|todo)\b(?=\s*[(.])/g
  return at(file, splitSource(source).bare, pattern, (text) => `a test is marked with ${text}`)
}

/** To `toMatchObject` a pattern is an object without properties: every text is one, and the test cannot fail. */
export function findIdlePatterns(file: string, source: string): string[] {
  const { bare } = splitSource(source)
  const problems: string[] = []
  for (const { index } of bare.matchAll(/\.toMatchObject\(/g)) {
    const begin = bare.indexOf('(', index)
    let end = begin + 1
    for (let open = 1; open > 0 && end < bare.length; end++) open += { '(': 1, ')': -1 }[bare[end]!] ?? 0
    // Where it is, so that the line is that of the pattern.
    const argument = bare.slice(0, begin).replace(/[^\n]/g, ' ') + bare.slice(begin, end)
    const pattern = /[[,:]\s*\/ +\/[a-z]*(?=\s*[,\]}])/g
    problems.push(...at(file, argument, pattern, () => 'a pattern in toMatchObject agrees with everything'))
  }
  return problems
}

export function findUnfinished(file: string, source: string): string[] {
  const pattern = /\b(?:TODO|FIXME)\b/g
  return at(file, splitSource(source).comments, pattern, (text) => `${text}: do it, or open an issue`)
}

export function findLongFile(file: string, source: string): string[] {
  const lines = source.trimEnd().split('\n').length
  return lines > maxLines ? [`${file}: ${lines} lines, more than ${maxLines}; look for the seam`] : []
}

export function findBadName(file: string): string[] {
  const name = path.posix.basename(file)
  const stem = name.slice(0, name.indexOf('.'))
  const folders = path.posix.dirname(file).split('/')
  const parts = [stem, ...folders.filter((folder) => folder !== '.')]
  if (parts.some((part) => /^(utils?|helpers?|common|types)$/.test(part))) {
    return [`${file}: a name that says nothing; name it after what it holds`]
  }
  const kebab = /^[a-z0-9]+(-[a-z0-9]+)*$/
  const isKebab = parts.every((part) => kebab.test(part)) && /^[^.]+(\.(test|config|d))?\.tsx?$/.test(name)
  return isKebab ? [] : [`${file}: file and folder names are kebab-case`]
}

/**
 * The lock file names no address: packages come from the registry that the machine is set up for, by their
 * checksum. (.npmrc makes npm leave addresses out; the ones it keeps are those of other places.)
 */
export function findForeignPackages(lockFile: string): string[] {
  const { packages = {} } = JSON.parse(lockFile) as {
    packages?: Record<string, { resolved?: string; link?: boolean }>
  }
  return Object.entries(packages).flatMap(([name, { resolved, link }]) =>
    resolved === undefined || link
      ? []
      : [
          `package-lock.json: "${name}" is fetched from ${resolved}; run npm install with the .npmrc of this repo`,
        ],
  )
}

function isTest(file: string): boolean {
  return /\.test\.tsx?$/.test(file)
}

function at(file: string, text: string, pattern: RegExp, say: (found: string) => string): string[] {
  return [...text.matchAll(pattern)].map(
    (match) => `${file}:${text.slice(0, match.index).split('\n').length}: ${say(match[0].trim())}`,
  )
}

if (import.meta.main) {
  const problems = checkRepository(path.join(import.meta.dirname, '..'))
  for (const problem of problems) console.error(problem)
  if (problems.length > 0) process.exitCode = 1
}
