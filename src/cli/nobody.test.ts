import { copyFile, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { writeProject } from './fixtures/live.ts'
import type { FilledStore } from './fixtures/store.ts'
import { fillStore } from './fixtures/store.ts'
import { curfew } from './fixtures/test-io.ts'

// What changes something opens a store that nobody works on for the moment, and runs nobody's work.

let template: string
let cwd: string
let ids: FilledStore

beforeAll(async () => {
  template = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  ids = await fillStore(path.join(template, 'curfew.db'))
})

beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await writeProject(cwd)
  await copyFile(path.join(template, 'curfew.db'), path.join(cwd, 'curfew.db'))
})

afterEach(async () => {
  await rm(cwd, { recursive: true, force: true })
})

afterAll(async () => {
  await rm(template, { recursive: true, force: true })
})

/** A command that must succeed, its document. */
async function document(...args: string[]): Promise<Record<string, unknown>> {
  const io = await curfew([...args, '--json'], { cwd })
  expect([io.code, io.err]).toEqual([0, expect.not.stringContaining('error')])
  return io.json() as Record<string, unknown>
}

afterEach(async () => {
  const left = (await readdir(cwd).catch(() => [])).filter((name) => name.startsWith('curfew.db'))
  expect(left.filter((name) => name !== 'curfew.db')).toEqual([])
})

test('cancel', async () => {
  expect(await document('cancel', ids.delayed)).toMatchObject({ answer: 'pending_cancelled' })
  expect(await document('status', ids.delayed)).toMatchObject({ status: 'cancelled' })
})

test('signal: it is kept for when somebody comes', async () => {
  await document('signal', ids.asking, 'answer', '42')
  expect(await document('status', ids.asking)).toMatchObject({ status: 'running' })
  const resumed = await curfew(['signal', ids.asking, 'answer', '43'], { cwd })
  expect([resumed.code, resumed.out]).toEqual([0, 'Signal answer is stored.\n'])
})

test('timeouts extend', async () => {
  const { deadlineAt } = await document('status', ids.delayed)
  expect(await document('timeouts', 'extend', ids.delayed, '5m')).toMatchObject({
    ...{ deadlineAt: (deadlineAt as number) + 300_000 },
  })
})

test('resume --no-wait of what is not parked is refused', async () => {
  const { code, err } = await curfew(['resume', ids.asking, '--no-wait', '--json'], { cwd })
  expect([code, JSON.parse(err)]).toMatchObject([1, { error: { code: 'refused' } }])
})

test('submit: of several modules', async () => {
  await writeFile(path.join(cwd, 'more.ts'), "export { hang } from './tasks.ts'")
  const modules = ['--module', 'tasks.ts', '--module', 'more.ts']
  expect(await document('submit', 'task', 'double', '--input', '4', ...modules)).toMatchObject({
    kind: 'task',
  })
})

test('submit stores it, and nobody runs it', async () => {
  const { code, out } = await curfew(['submit', 'task', 'double', '--input', '4', '--module', 'tasks.ts'], {
    cwd,
  })
  expect(code).toBe(0)
  expect(await document('status', out.trim())).toMatchObject({
    name: 'double',
    status: 'pending',
    attempts: 0,
  })
  const flow = await document('submit', 'double.yml', '--input', '4', '--module', 'tasks.ts')
  expect(await document('status', flow.id as string)).toMatchObject({ kind: 'workflow', output: null })
})

test('submit of a name that nobody here knows is refused', async () => {
  const { code, err } = await curfew(['submit', 'task', 'double', '--json'], { cwd })
  expect([code, JSON.parse(err)]).toMatchObject([2, { error: { code: 'unknown_task' } }])
})

test.each([
  ['task', 'submit task: the name of the task is missing'],
  ['agent', 'submit agent: the name of the agent is missing'],
  ['workflow', 'submit workflow: the name of the workflow is missing'],
  ['job', 'submit job: the file of the job is missing'],
])('submit %s without more says what is missing, unless there is such a file', async (word, message) => {
  const { code, err } = await curfew(['submit', word, '--json'], { cwd })
  expect([code, JSON.parse(err).error]).toEqual([
    2,
    { code: 'usage', message, hint: expect.stringContaining('submit FILE, or submit task NAME') },
  ])
  await copyFile(path.join(cwd, 'double.yml'), path.join(cwd, word))
  expect(await document('submit', word, '--input', '4', '--module', 'tasks.ts')).toMatchObject({
    kind: 'workflow',
  })
})

test('submit --wait is refused before anything is stored: it would wait for ever', async () => {
  const { code, err } = await curfew(['submit', 'double.yml', '--wait', '--module', 'tasks.ts', '--json'], {
    cwd,
  })
  expect([code, JSON.parse(err)]).toMatchObject([1, { error: { code: 'nobody_works' } }])
  expect(await document('list', '--name', 'double-flow')).toMatchObject({ works: [] })
})

test('submit makes a store that is not there', async () => {
  await document('submit', 'shell.yml', '--store', 'new.db')
  expect(await document('list', '--kind', 'workflow', '--store', 'new.db')).toMatchObject({ works: [{}] })
})

test('resume takes the store and works on it to the end', async () => {
  await document('signal', ids.asking, 'answer', '"yes"')
  const { code, out } = await curfew(['resume', ids.asking, '--module', 'tasks.ts'], { cwd })
  expect([code, out]).toEqual([0, '"yes"\n'])
})

test('work that is parked stops a resume, and goes on with the next', async () => {
  await writeFile(
    path.join(cwd, 'changed.ts'),
    `import { agent } from '${path.join(import.meta.dirname, '../curfew.ts')}'
export default agent({ name: 'ask', timeout: '1h', run: async (_, ctx) => { await ctx.sleep('1s'); return 1 } })
`,
  )
  await document('signal', ids.asking, 'answer', '"yes"')
  const stopped = await curfew(
    ['resume', ids.asking, '--module', 'changed.ts', '--log', 'silent', '--json'],
    { cwd },
  )
  expect(stopped.code).toBe(1)
  expect(JSON.parse(stopped.err.split('\n').find((line) => line.startsWith('{"error')) ?? '')).toMatchObject({
    ...{ error: { code: 'parked', hint: expect.stringContaining(`curfew resume ${ids.asking}`) } },
  })
  expect(await document('list', '--parked')).toMatchObject({ works: [{ id: ids.asking }] })
  expect((await curfew(['resume', ids.asking, '--no-wait'], { cwd })).out).toBe(`${ids.asking} goes on.\n`)
  expect(await document('list', '--parked')).toMatchObject({ works: [] })
  const { code, out } = await curfew(['resume', ids.asking, '--module', 'tasks.ts'], { cwd })
  expect([code, out]).toEqual([0, '"yes"\n'])
})

test('resume of what has ended tells how', async () => {
  const { code, err } = await curfew(['resume', ids.timedOut], { cwd })
  expect([code, err]).toEqual([124, expect.stringContaining('timed out after 30ms')])
  expect((await curfew(['resume', 't_0'], { cwd })).code).toBe(1)
})
