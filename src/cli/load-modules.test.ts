import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { CurfewError } from '../core/errors.ts'
import { loadModules } from './load-modules.ts'

const CURFEW = path.join(import.meta.dirname, '../curfew.ts')
const HEAD = `import { agent, job, loadWorkflow, task, workflow } from '${CURFEW}'\n`
const named = (name: string) => `task({ name: '${name}', run: () => 1 })`

let cwd: string

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-modules-'))
  writeFileSync(path.join(cwd, 'package.json'), '{ "type": "module" }')
})

afterEach(() => {
  rmSync(cwd, { recursive: true, force: true })
})

async function load(files: Record<string, string>, names = Object.keys(files)) {
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(cwd, name), text)
  const { tasks, agents, workflows, jobs } = await loadModules(names, cwd)
  return {
    tasks: tasks.map(({ name }) => name).toSorted(),
    agents: agents.map(({ name }) => name),
    workflows: workflows.map(({ name }) => name).toSorted(),
    jobs: jobs.map(({ model }) => model.name),
  }
}

const none = { tasks: [], agents: [], workflows: [], jobs: [] }

test('every kind of definition is found, what a job was given too', async () => {
  const text = `${HEAD}
    export const a = ${named('a')}
    export const b = agent({ name: 'b', run: async () => 1 })
    const inner = ${named('inner')}
    export const w = workflow({ name: 'w', timeout: '1m', actions: { a }, nodes: [{ id: 'n', actionId: 'a' }] })
    const hidden = workflow({ name: 'hidden', timeout: '1m', actions: { a }, nodes: [{ id: 'n', actionId: 'a' }] })
    export const j = job({ name: 'j', workflows: [{ id: 'x', task: inner }, { id: 'y', workflow: hidden }] })
    export const limit = 3
    export function help(): string { return 'x' }`
  expect(await load({ 'all.ts': text })).toEqual({
    tasks: ['a', 'inner'],
    agents: ['b'],
    workflows: ['hidden', 'w'],
    jobs: ['j'],
  })
})

test.each([
  ['by default', `export default ${named('a')}`, ['a']],
  ['in a list', `export const list = [${named('a')}, ${named('b')}]`, ['a', 'b']],
  ['in a list by default', `export default [${named('a')}, 7, ${named('b')}]`, ['a', 'b']],
  ['in an object by default', `export default { a: ${named('a')}, list: [${named('b')}] }`, ['a', 'b']],
  ['twice, the same', `export const a = ${named('a')}; export { a as again }; export default a`, ['a']],
])('a task is found %s', async (_, text, tasks) => {
  expect(await load({ 'm.ts': HEAD + text })).toEqual({ ...none, tasks })
})

test('a CommonJS module that holds itself is read once', async () => {
  const text = `
    const { task } = require('${CURFEW}')
    module.exports = { one: ${named('one')} }
    module.exports.default = module.exports
    module.exports.again = [module.exports.one]`
  expect(await load({ 'm.cjs': text })).toEqual({ ...none, tasks: ['one'] })
})

test('a definition that two modules export is one', async () => {
  const files = {
    'a.ts': `${HEAD}export const a = ${named('a')}`,
    'b.ts': `${HEAD}export * from './a.ts'\nexport const b = ${named('b')}`,
  }
  expect(await load(files)).toEqual({ ...none, tasks: ['a', 'b'] })
})

describe('an error', () => {
  const problemOf = (files: Record<string, string>, names?: string[]) =>
    load(files, names).then(
      (found) => `no problem: ${JSON.stringify(found)}`,
      (error: CurfewError) => `${error.code}: ${error.message}`,
    )

  test.each<[string, Record<string, string>, string[] | undefined, string]>([
    ['a module that is not there', {}, ['missing.ts'], 'no_such_file: there is no module missing.ts'],
    [
      'another ending',
      { 'tasks.ts': '' },
      ['./tasks.js'],
      'no_such_file: there is no module ./tasks.js\n  Did you mean tasks.ts?',
    ],
    ['a slip', { 'resize.ts': '' }, ['resise.ts'], 'there is no module resise.ts\n  Did you mean resize.ts?'],
    [
      'nothing to run',
      { 'm.ts': "export const a = 1\nexport default () => 2\nexport const tasks = ['x']" },
      undefined,
      'invalid_module: m.ts exports no task, agent, workflow or job: it exports a (a number), default (a function), tasks[0] (a string)',
    ],
    [
      'nothing at all',
      { 'm.ts': 'const a = 1' },
      undefined,
      'm.ts exports no task, agent, workflow or job: it exports nothing',
    ],
    [
      'a definition in YAML',
      { 'flow.yml': 'name: x' },
      undefined,
      'invalid_module: flow.yml is a definition, not a module',
    ],
    [
      'code that throws',
      { 'm.ts': "throw new Error('no key')" },
      undefined,
      'invalid_module: m.ts cannot be loaded: Error: no key',
    ],
    ['an import that is not there', { 'm.ts': "import './gone.ts'" }, undefined, 'm.ts cannot be loaded'],
    ['code that cannot be read', { 'm.ts': 'export const = 1' }, undefined, 'm.ts cannot be loaded'],
    [
      'two tasks of one name',
      {
        'a.ts': `${HEAD}export const a = ${named('same')}`,
        'b.ts': `${HEAD}export const b = [${named('same')}]`,
      },
      undefined,
      "invalid_module: there are two definitions of the task 'same': in a.ts, export a, and in b.ts, export b[0]",
    ],
    [
      'a task and an agent of one name',
      {
        'a.ts': `${HEAD}export const a = agent({ name: 'same', run: async () => 1 })\nexport const b = ${named('same')}`,
      },
      undefined,
      "there are two definitions of the agent 'same'",
    ],
    [
      'a task of a job that another has the name of',
      {
        'a.ts': `${HEAD}export const a = ${named('same')}\nexport const j = job({ workflows: [{ id: 'x', task: ${named('same')} }] })`,
      },
      undefined,
      "two definitions of the task 'same': in a.ts, export a, and in a.ts, export j, which uses it",
    ],
  ])('%s', async (_, files, names, expected) => {
    expect(await problemOf(files, names)).toContain(expected)
  })
})
