// What a user gets: the packed tarball, installed into an empty folder, runs the README's example, and its
// types resolve.

import { execFile } from 'node:child_process'
import { access, constants, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { firstExample, missingLines } from './readme-example.ts'

const run = promisify(execFile)
const root = path.join(import.meta.dirname, '..')
const minutes = 60_000

let folder: string
let project: string

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'curfew-package-'))
  project = path.join(folder, 'project')
  await mkdir(project)
  // `prepack` builds.
  await command('npm', ['pack', '--pack-destination', folder], root)
  const tarball = (await readdir(folder)).find((name) => name.endsWith('.tgz'))
  if (!tarball) throw new Error('npm pack made no tarball')
  await writeFile(path.join(project, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
  const flags = ['--no-audit', '--no-fund', '--prefer-offline']
  await command('npm', ['install', ...flags, path.join(folder, tarball)], project)
}, 5 * minutes)

afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
})

test('the tarball holds what is published and no tests', async () => {
  const files = await readdir(path.join(project, 'node_modules/curfew'), { recursive: true })
  expect(files).toEqual(
    expect.arrayContaining([
      'README.md',
      'LICENSE',
      'dist/curfew.js',
      'dist/curfew.d.ts',
      'dist/curfew.js.map',
      'dist/cli/main.js',
      'dist/LICENSES.txt',
    ]),
  )
  expect(files.filter((file) => /\.test\.|fixtures|^(src|scripts|bench|examples)$/.test(file))).toEqual([])
})

test('the example of the README runs and prints what the README says', async () => {
  const example = await readExample()
  await writeFile(path.join(project, 'example.ts'), example.source)
  const printed = await command(process.execPath, ['example.ts'], project)
  expect(missingLines(example.output, printed), `the example printed:\n${printed}`).toEqual([])
})

test('both entry points can be imported', async () => {
  for (const name of ['curfew', 'curfew/testing']) {
    const script = `console.log(Object.keys(await import('${name}')).length)`
    const printed = await command(process.execPath, ['--input-type=module', '--eval', script], project)
    expect(Number(printed), `${name} exports nothing`).toBeGreaterThan(0)
  }
})

test('the command is installed: it answers, and runs a file', async () => {
  const bin = path.join(project, 'node_modules/.bin/curfew')
  await access(bin, constants.X_OK)
  const { version } = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as {
    version: string
  }
  expect(await command(process.execPath, [bin, '--version'], project)).toBe(`${version}\n`)
  expect(await command(process.execPath, [bin, '--help'], project)).toContain('Usage: curfew')
  const flow = `name: hello
nodes: [{ id: say, action_id: say }]
actions: { say: { kind: shell, command: echo hello, execution: { timeout: 30s } } }
`
  await writeFile(path.join(project, 'hello.yml'), flow)
  const printed = await command(process.execPath, [bin, 'run', 'hello.yml'], project)
  expect(JSON.parse(printed)).toMatchObject({ stdout: 'hello\n' })
})

test('what is started as a program or thread of its own is there: a worker beside a manager, a witness', async () => {
  const script = `import { Curfew, task } from 'curfew'
const echo = task({ name: 'echo', run: (input) => input })
const manager = await Curfew.open({ store: 'parts.db', tasks: [echo], concurrency: 0, listen: '127.0.0.1:0' })
const worker = await Curfew.work({ managers: manager.addresses, tasks: [echo], witness: true })
await worker.attached()
console.log(await (await manager.schedule(echo, 'hello')).result())
await worker.close()
await manager.close()
`
  await writeFile(path.join(project, 'parts.ts'), script)
  expect(await command(process.execPath, ['parts.ts'], project)).toBe('hello\n')
})

test('the licences of what is bundled are in it', async () => {
  const licences = await readFile(path.join(project, 'node_modules/curfew/dist/LICENSES.txt'), 'utf8')
  for (const name of ['commander', 'pg', 'pino', 'yaml', '@bufbuild/cel'])
    expect(licences).toContain(`${name} `)
})

test('the types of both entry points resolve, and the example of the README fits them', async () => {
  const { source } = await readExample()
  await writeFile(path.join(project, 'example.ts'), source)
  await writeFile(
    path.join(project, 'imports.ts'),
    `import * as curfew from 'curfew'
import * as testing from 'curfew/testing'
export const names: string[] = [...Object.keys(curfew), ...Object.keys(testing)]
// What a library exports needs types that can be named.
export const workflow = curfew.validateWorkflow('')
export const job = curfew.validateJob('')
`,
  )
  const compilerOptions = {
    noEmit: true,
    declaration: true,
    strict: true,
    target: 'es2024',
    module: 'nodenext',
    moduleResolution: 'nodenext',
    allowImportingTsExtensions: true,
    skipLibCheck: true,
    types: ['node'],
    typeRoots: [path.join(root, 'node_modules/@types')],
  }
  await writeFile(
    path.join(project, 'tsconfig.json'),
    JSON.stringify({ compilerOptions, files: ['imports.ts', 'example.ts'] }),
  )
  await command(path.join(root, 'node_modules/.bin/tsc'), ['-p', '.'], project)
})

async function readExample() {
  return firstExample(await readFile(path.join(root, 'README.md'), 'utf8'))
}

/** Answers what it printed; a failure says what it printed, too. */
async function command(file: string, args: string[], cwd: string): Promise<string> {
  try {
    const { stdout } = await run(file, args, { cwd, timeout: 4 * minutes })
    return stdout
  } catch (error) {
    const { code, stdout, stderr } = error as { code?: unknown; stdout?: string; stderr?: string }
    throw new Error(`${path.basename(file)} ${args.join(' ')} ended with ${code}:\n${stdout}\n${stderr}`, {
      cause: error,
    })
  }
}
