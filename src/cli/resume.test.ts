import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Curfew, findHolder, task } from '../curfew.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { until } from './fixtures/cli-process.ts'
import { writeProject } from './fixtures/live.ts'
import { curfew, TestIo } from './fixtures/test-io.ts'
import { main } from './program.ts'

const MINUTE_MS = 60_000

let cwd: string
let store: string
beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  store = path.join(cwd, 'curfew.db')
  await writeProject(cwd)
})
afterEach(() => rm(cwd, { recursive: true, force: true }))

/** Waits for a file that is not there. Started an hour ago, and left at once. */
async function leftRun(timeout: string): Promise<string> {
  const clock = new VirtualClock(Date.now() - 60 * MINUTE_MS)
  const wait = task({ name: 'wait', run: () => null })
  const engine = await Curfew.open({ store, clock, concurrency: 0, tasks: [wait] })
  const definition = 'name: flow\nnodes: [{ id: only, action_id: wait, input: input }]\n'
  const { id } = await engine.submitNamed({ definition, input: path.join(cwd, 'go'), timeout })
  await engine.close()
  return id
}

const resume = (id: string, ...args: string[]) => ['resume', id, '--module', 'tasks.ts', ...args]

async function deadlineOf(id: string): Promise<number> {
  const io = await curfew(['status', id, '--json'], { cwd })
  return (io.json() as { deadlineAt: number }).deadlineAt
}

test('a run whose time was over when it is resumed has timed out; with --timeout it has so much', async () => {
  const late = await curfew(resume(await leftRun('30m')), { cwd })
  expect([late.code, late.err]).toEqual([124, expect.stringContaining('timed out')])
  const id = await leftRun('30m')
  await writeFile(path.join(cwd, 'go'), '')
  const from = Date.now()
  const inTime = await curfew(resume(id, '--timeout', '2h'), { cwd })
  expect([inTime.code, inTime.out]).toEqual([0, '"it came"\n'])
  const deadlineAt = await deadlineOf(id)
  expect(deadlineAt).toBeGreaterThanOrEqual(from + 120 * MINUTE_MS)
  expect(deadlineAt).toBeLessThanOrEqual(Date.now() + 120 * MINUTE_MS)
})

test('what nobody here has the code of is not waited for: it says what is missing, and leaves the work alone', async () => {
  const wait = task({ name: 'wait', run: () => null })
  const engine = await Curfew.open({ store, concurrency: 0, tasks: [wait] })
  const alone = await engine.schedule(wait)
  const definition = 'name: one\nworkflows:\n  - { id: first, task: wait }\n'
  const { id } = await engine.submitNamed({ definition })
  await until(async () => (await engine.list({ parent: id })).tasks.length === 1)
  await engine.close()
  for (const left of [alone.id, id]) {
    const { code, err } = await curfew(['resume', left, '--json'], { cwd })
    expect([code, JSON.parse(err)]).toMatchObject([
      2,
      { error: { code: 'unknown_task', hint: expect.stringContaining('--module') } },
    ])
    const status = await curfew(['status', left, '--json'], { cwd })
    expect(['pending', 'running']).toContain((status.json() as { status: string }).status)
  }
})

test('--timeout is set once, also where the store changes hands while the run is resumed', async () => {
  const id = await leftRun('2h')
  const before = await deadlineOf(id)
  const holder = await Curfew.open({ store, concurrency: 0 })
  const io = new TestIo({ cwd })
  // Without the code nothing runs that would have to be stopped first.
  const ended = main(['resume', id, '--timeout', '3h'], io)
  await until(async () => (await deadlineOf(id)) !== before)
  const set = await deadlineOf(id)
  await io.printed(/flow/)
  await holder.close()
  await io.printed(/is gone/)
  await until(() => findHolder(store)?.socket)
  expect(await deadlineOf(id)).toBe(set)
  io.send('SIGINT')
  expect(await ended).toBe(130)
  expect(await deadlineOf(id)).toBe(set)
})

test.each([
  ['2h', '30m', 'has more time left than 30m'],
  ['2h', 'soon', '--timeout'],
])('a limit of %s is not moved to %s', async (limit, to, message) => {
  const id = await leftRun(limit)
  const deadlineAt = await deadlineOf(id)
  const { code, err } = await curfew(resume(id, '--timeout', to), { cwd })
  expect([code, err]).toEqual([2, expect.stringContaining(message)])
  expect(await deadlineOf(id)).toBe(deadlineAt)
})
