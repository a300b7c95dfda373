// What is published: the entry points and the programs they start, each with what it shares with others in chunks, so
// that a command loads a few files instead of some hundred. Dependencies are in it, with their licences; types are tsc's.

import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import * as http from 'node:http'
import path from 'node:path'
import type { Plugin } from 'rolldown'
import { rolldown } from 'rolldown'

const root = path.join(import.meta.dirname, '..')
const dist = path.join(root, 'dist')

const ENTRIES = ['curfew', 'testing/testing', 'cli/main']
const WEB = ['WebSocket', 'CloseEvent', 'MessageEvent']
const WITHOUT_WEB = 'http-without-web'
const METRICS_ALONE = 'metrics-alone'
/** Started by their path: they stay where they are. */
const PROGRAMS = /-(thread|process|obituary)\.ts$/

/**
 * An `import` of node:http reads each of its exports, and some of them load a whole browser's worth of code. Taken as
 * an object it does not.
 */
const withoutWeb: Plugin = {
  name: 'without-web',
  resolveId: { filter: { id: /^(node:)?http$/ }, handler: () => WITHOUT_WEB },
  load: {
    filter: { id: /^http-without-web$/ },
    handler: () => {
      const names = Object.keys(http).filter((name) => !WEB.includes(name) && name !== 'default')
      return `const http = process.getBuiltinModule('node:http')
export default http
export const { ${names.join(', ')} } = http`
    },
  },
}

/** Its other parts load most of Node: servers, processes, compression. */
const metricsAlone: Plugin = {
  name: 'metrics-alone',
  resolveId: { filter: { id: /^prom-client$/ }, handler: () => METRICS_ALONE },
  load: {
    filter: { id: /^metrics-alone$/ },
    handler: () =>
      ['Counter', 'Gauge', 'Histogram', 'Registry']
        .map((name) => `export { default as ${name} } from 'prom-client/lib/${name.toLowerCase()}.js'`)
        .join('\n'),
  },
}

rmSync(dist, { recursive: true, force: true })
const files = await readdir(path.join(root, 'src'), { recursive: true })
const programs = files.filter((file) => PROGRAMS.test(file) && !file.includes('fixtures'))
const names = [...ENTRIES, ...programs.map((file) => file.replace(/\.ts$/, ''))]
const bundle = await rolldown({
  input: Object.fromEntries(names.map((name) => [name, path.join(root, 'src', `${name}.ts`)])),
  platform: 'node',
  // Asked for by pg, and never used.
  external: ['pg-native'],
  plugins: [withoutWeb, metricsAlone],
  onLog: (level, log) => {
    if (level === 'warn') throw new Error(log.message)
  },
})
const { output } = await bundle.write({
  dir: dist,
  entryFileNames: '[name].js',
  // One below the top, as the folders of the sources are: paths from there to the top stay what they are.
  chunkFileNames: 'chunks/[name]-[hash].js',
  // A file more costs each process that loads it more than what it need not have read.
  codeSplitting: {
    groups: [
      { name: 'core', test: isIn('src/core'), priority: 2 },
      { name: 'definitions', test: isIn('src/definitions'), priority: 1 },
    ],
  },
  sourcemap: true,
})
// They find their way from where they are, one below the top.
for (const name of ['core/entry-file.ts', 'wire/protocol.ts', 'cli/program.ts']) {
  const file = path.join(root, 'src', name)
  const chunk = output.find((part) => part.type === 'chunk' && part.moduleIds.includes(file))
  if (!chunk || path.dirname(path.dirname(chunk.fileName)) !== '.' || path.dirname(chunk.fileName) === '.')
    throw new Error(`${name} is in ${chunk?.fileName}, and has to be in a folder of the top`)
}
const packages = new Set(
  output
    .flatMap((part) => (part.type === 'chunk' ? part.moduleIds : []))
    .flatMap((id) => /.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0] ?? []),
)
writeFileSync(path.join(dist, 'LICENSES.txt'), [...packages].sort().map(licenceOf).join('\n'))

function isIn(folder: string): (id: string) => boolean {
  return (id) => id.startsWith(path.join(root, folder, path.sep))
}

function licenceOf(folder: string): string {
  const { name, version, license } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as {
    name: string
    version: string
    license: string
  }
  const file = ['LICENSE', 'LICENSE.md', 'LICENSE.txt', 'license'].find((one) =>
    existsSync(path.join(folder, one)),
  )
  const text = file === undefined ? '' : readFileSync(path.join(folder, file), 'utf8')
  return `${name} ${version} (${license})\n\n${text}\n${'-'.repeat(80)}\n`
}
