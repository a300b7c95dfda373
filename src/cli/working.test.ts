import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { Curfew, task } from '../curfew.ts'
import { loadConfig } from './config.ts'
import { isLost } from './find-engine.ts'
import { writeProject } from './fixtures/live.ts'
import { curfew, TestIo } from './fixtures/test-io.ts'
import { attachWorker } from './lent-worker.ts'
import { loadModules } from './load-modules.ts'
import { main } from './program.ts'

let cwd: string
let engine: Curfew
const elsewhere = tmpdir()

beforeAll(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await writeProject(cwd)
  const { tasks, agents, workflows } = await loadModules(['tasks.ts'], cwd)
  engine = await Curfew.open({
    ...{ store: path.join(cwd, 'curfew.db'), tasks, agents, workflows },
    listen: '127.0.0.1:0',
  })
})

afterAll(async () => {
  await engine?.close()
  await rm(cwd, { recursive: true, force: true })
})

afterEach(async () => {
  const { tasks } = await engine.list({ status: ['pending', 'running'], limit: 1_000 })
  for (const { id, parentId } of tasks) if (parentId === null) await engine.task(id).cancel()
})

/** A command that must succeed, its document. */
async function document(...args: string[]): Promise<Record<string, unknown>> {
  const io = await curfew([...args, '--json'], { cwd })
  expect([io.code, io.err]).toEqual([0, expect.not.stringContaining('error')])
  return io.json() as Record<string, unknown>
}

async function errorOf(...args: string[]): Promise<{ exit: number; code: string; message: string }> {
  const { code, out, err } = await curfew([...args, '--json'], { cwd })
  expect(out).toBe('')
  return { exit: code, ...JSON.parse(err).error }
}

/** The id of new work. */
async function submit(...args: string[]): Promise<string> {
  const { code, out, err } = await curfew(['submit', ...args], { cwd })
  expect([code, err]).toEqual([0, ''])
  return out.trim()
}

describe('submit', () => {
  test('prints the id, and the process that is there runs it', async () => {
    const id = await submit('task', 'double', '--input', '4')
    expect(id).toMatch(/^t_\w{26}$/)
    expect(await engine.task(id).result()).toBe(8)
  })

  test.each([
    [['agent', 'ask'], 'agent', /^g_/],
    [['workflow', 'twice', '--input', '3'], 'workflow', /^w_/],
    [['double.yml', '--input', '3'], 'workflow', /^w_/],
    [['job.yml'], 'job', /^j_/],
  ])('%j: --json says what it is', async (args, kind, id) => {
    expect(await document('submit', ...args)).toEqual({
      id: expect.stringMatching(id),
      kind,
      existing: false,
    })
  })

  test('the same key is the same work', async () => {
    const first = await submit('task', 'double', '--input', '4', '--key', 'k')
    const again = await curfew(['submit', 'task', 'double', '--input', '4', '--key', 'k'], { cwd })
    expect([again.out.trim(), again.err]).toEqual([first, 'It was submitted before.\n'])
    expect(await errorOf('submit', 'task', 'double', '--input', '5', '--key', 'k')).toMatchObject({
      ...{ exit: 1, code: 'key_conflict' },
    })
  })

  test('--timeout, --delay and --traceparent go with it', async () => {
    const trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    const id = await submit(...['task', 'hang', '--delay', '1h', '--timeout', '2h', '--traceparent', trace])
    const view = await engine.task(id).view()
    expect(view.startAt - view.createdAt).toBe(3_600_000)
    expect(view.deadlineAt).toBe(view.startAt + 7_200_000)
    expect(view.trace).toBe(trace)
  })

  test('--wait waits, prints the output and exits as it ended', async () => {
    const done = await curfew(['submit', 'task', 'double', '--input', '8', '--wait'], { cwd })
    expect([done.code, done.out]).toEqual([0, '16\n'])
    const failed = await curfew(['submit', 'boom.yml', '--wait', '--json'], { cwd })
    expect([failed.code, failed.json()]).toMatchObject([1, { status: 'failed' }])
  })

  test.each([
    [['task', 'dobule'], 2, 'unknown_task'],
    [['tsk', 'double'], 2, 'usage'],
    [['gone.yml'], 2, 'no_such_file'],
    [['wrong.yml'], 2, 'invalid_definition'],
    [['double.yml', '--delay', '1m'], 2, 'usage'],
    [['job.yml', '--input', '1'], 2, 'usage'],
    [['task', 'double', '--input', 'nope'], 2, 'invalid_json'],
    [['task', 'double', '--input', '9007199254740993'], 2, 'invalid_json'],
    [['task', 'double', '--timeout', 'soon'], 2, 'invalid_duration'],
    [['task', 'double', '--traceparent', 'nope'], 2, expect.stringMatching(/^invalid_/)],
  ])('%j is refused', async (args, exit, code) => {
    expect(await errorOf('submit', ...args)).toMatchObject({ exit, code })
  })
})

describe('watch', () => {
  test('prints one line for every change, and exits as it ended', async () => {
    const id = await submit('wait.yml', '--input', JSON.stringify(path.join(cwd, 'watched')))
    const io = new TestIo({ cwd })
    const ended = main(['watch', id], io)
    await io.printed(/wait-flow\/only running .*left \(total\)/)
    await writeFile(path.join(cwd, 'watched'), '')
    expect(await ended).toBe(0)
    expect(io.out).toMatch(/\nwait-flow\/only completed .*\n(.*\n)*wait-flow completed|wait-flow completed/)
    expect(io.err).toBe('')
  })

  test('--json prints one object a line, the last one is final', async () => {
    const id = await submit('boom.yml')
    const { code, out } = await curfew(['watch', id, '--json'], { cwd })
    expect(code).toBe(1)
    const seen = out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(seen.at(-1)).toMatchObject({ final: true, work: { id, status: 'failed', settled: true } })
    const events = seen.flatMap((one) => one.events)
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => i + 1))
  })

  test('ends with 130 when the work is cancelled', async () => {
    const id = await submit('task', 'hang')
    const io = new TestIo({ cwd })
    const ended = main(['watch', id], io)
    await io.printed(/hang running/)
    await engine.task(id).cancel()
    expect(await ended).toBe(130)
  })

  test('ends when nobody reads any more', async () => {
    const id = await submit('task', 'hang')
    const io = new TestIo({ cwd })
    const ended = main(['watch', id, '--json'], io)
    await io.printed(/"work"/)
    io.closeOutput()
    await ended
  })

  test('an unknown id is an error', async () => {
    expect(await errorOf('watch', 't_0')).toMatchObject({ exit: 1, code: 'not_found' })
  })
})

test('events --follow goes on until the end', async () => {
  const file = path.join(cwd, 'followed')
  const id = await submit('task', 'wait', '--input', JSON.stringify(file))
  const io = new TestIo({ cwd })
  const ended = main(['events', id, '--follow'], io)
  await io.printed(/attempt_started/)
  await writeFile(file, '')
  expect(await ended).toBe(0)
  expect(io.out.match(/task_scheduled|attempt_started|task_completed/g)).toEqual([
    'task_scheduled',
    'attempt_started',
    'task_completed',
  ])
})

describe('cancel', () => {
  test('--wait comes back with the receipts when everything has stopped', async () => {
    const id = await submit('hang.yml')
    await running('hang')
    const { code, out } = await curfew(['cancel', id, '--wait'], { cwd })
    expect(code).toBe(0)
    expect(out).toMatch(
      /^It was running, and is being stopped\.\nTASK +ID +ATTEMPT +RECEIPT\nhang +t_\w+ +1 +aborted\n/,
    )
    expect(out).toMatch(/Everything has stopped\.\n$/)
  })

  test('--json has the answer and the ledger', async () => {
    const id = await submit('task', 'hang', '--delay', '1h')
    expect(await document('cancel', id, '--wait')).toEqual({
      ...{ id, workflow: null, answer: 'pending_cancelled', success: true, errors: [], ledger: [] },
    })
    expect(await document('cancel', id)).toMatchObject({ answer: 'already_cancelled' })
  })

  test('what has ended is left as it is', async () => {
    const id = await submit('task', 'double', '--input', '1')
    await engine.task(id).result()
    const { code, out } = await curfew(['cancel', id, '--wait'], { cwd })
    expect([code, out]).toEqual([0, 'It has ended before.\n'])
    expect(await document('cancel', id, '--wait')).toMatchObject({
      ...{ answer: 'already_completed', success: false, errors: ['it was not cancelled: it is completed'] },
      ledger: [{ taskId: id, attempt: 1, receipt: 'exited' }],
    })
  })

  test('--wait also waits for what is being stopped already, and says that it still runs', async () => {
    const id = await submit('task', 'stubborn', '--timeout', '300ms')
    for await (const { work } of engine.watch(id)) if (work.status === 'timed_out') break
    const { code, out } = await curfew(['cancel', id, '--wait'], { cwd })
    expect([code, out]).toEqual([
      1,
      expect.stringMatching(/^It has ended before\.\n(.*\n)*stubborn +t_\w+ +1 +abandoned\n/),
    ])
    expect(out).toMatch(/attempt 1 ignored its signal and still runs\nNot everything has stopped\.\n$/)
  })

  test('one workflow of a job, without those that depend on it', async () => {
    await writeFile(
      path.join(cwd, 'three.yml'),
      `name: three
workflows:
  - { id: a, task: hang }
  - { id: b, task: double, input: 1, depends_on: a, run_if: always }
`,
    )
    const id = await submit('three.yml')
    await running('hang')
    expect(await document('cancel', id, '--workflow', 'a', '--no-dependents', '--wait')).toMatchObject({
      ...{ workflow: 'a', answer: 'cancelled', success: true },
    })
    expect(await engine.job(id).workflow('b').result()).toBe(2)
    expect(await errorOf('cancel', id, '--workflow', 'c')).toMatchObject({ exit: 1, code: 'not_found' })
  })

  test('124 when the wait was over first', async () => {
    const id = await submit('task', 'stubborn')
    await running('stubborn')
    expect(await errorOf('cancel', id, '--wait', '--timeout', '10ms')).toMatchObject({
      ...{ exit: 124, code: 'wait_timed_out' },
    })
  })

  test.each([
    [['t_0'], 1, 'not_found'],
    [['t_0', '--no-dependents'], 2, 'usage'],
    [['t_0', '--timeout', '1s'], 2, 'usage'],
    [['t_0', '--wait', '--timeout', 'x'], 2, 'invalid_duration'],
  ])('%j is refused', async (args, exit, code) => {
    expect(await errorOf('cancel', ...args)).toMatchObject({ exit, code })
  })
})

test('signal reaches the agent', async () => {
  const id = await submit('agent', 'ask')
  expect(await document('signal', id, 'answer', '{"yes":true}')).toEqual({
    ...{ id, name: 'answer', value: { yes: true } },
  })
  expect(await engine.agent(id).result()).toEqual({ yes: true })
  expect(await errorOf('signal', id, 'answer')).toMatchObject({ exit: 1, code: 'refused' })
  expect(await errorOf('signal', id, 'answer', '{')).toMatchObject({ exit: 2, code: 'invalid_json' })
})

test('timeouts extend moves the deadline', async () => {
  const id = await submit('task', 'hang', '--timeout', '1h')
  const { deadlineAt } = await engine.task(id).view()
  expect(await document('timeouts', 'extend', id, '30m')).toEqual({
    ...{ id, by: '30m', deadlineAt: (deadlineAt ?? 0) + 1_800_000 },
  })
  const { out } = await curfew(['timeouts', 'extend', id, '1m'], { cwd })
  expect(out).toMatch(/^It has until \d{4}-.*Z\.\n$/)
  const unknown = task({ name: 'unknown', queueTimeout: '1h', run: () => 1 })
  const waiting = await engine.schedule(unknown)
  expect((await curfew(['timeouts', 'extend', waiting.id, '1m'], { cwd })).out).toMatch(/^It has until /)
  await waiting.cancel()
  expect(await errorOf('timeouts', 'extend', id, 'long')).toMatchObject({ exit: 2, code: 'invalid_duration' })
  expect(await errorOf('timeouts', 'extend', 't_0', '1m')).toMatchObject({ exit: 1, code: 'not_found' })
})

describe('over an address', () => {
  const overHttp = (...args: string[]) =>
    curfew([...args, '--manager', engine.addresses.find((url) => url.startsWith('http')) ?? ''], {
      cwd: elsewhere,
    })

  test('a manager is asked', async () => {
    const id = (await overHttp('submit', 'task', 'double', '--input', '2')).out.trim()
    expect(await engine.task(id).result()).toBe(4)
    expect((await overHttp('status', id, '--json')).json()).toMatchObject({ id, output: 4 })
    expect((await overHttp('list', '--json', '--kind', 'task', '--limit', '1')).json()).toMatchObject({
      works: [{ id }],
    })
    expect((await overHttp('explain', id, '--json')).json()).toMatchObject({ id, status: 'completed' })
  })

  test('the environment may name it', async () => {
    const env = { CURFEW_MANAGERS: engine.addresses[0] ?? '' }
    expect((await curfew(['list'], { cwd: elsewhere, env })).code).toBe(0)
  })

  test('run follows what the manager runs', async () => {
    const file = path.join(cwd, 'double.yml')
    const { code, out } = await overHttp('run', file, '--input', '6')
    expect([code, out]).toEqual([0, '12\n'])
  })

  test('workers lists who is attached, by label', async () => {
    const { tasks } = await loadModules(['tasks.ts'], cwd)
    const worker = await Curfew.work({ managers: engine.addresses, tasks, labels: { zone: 'eu' } })
    try {
      await worker.attached()
      const { workers } = (await overHttp('workers', '--label', 'zone=eu', '--json')).json() as {
        workers: unknown[]
      }
      expect(workers).toMatchObject([{ id: worker.workerId, labels: { zone: 'eu' }, status: 'attached' }])
      const { out } = await overHttp('workers')
      expect(out).toMatch(/^ID +HOST +STATUS +RUNNING +QUEUES +RUNS +LABELS +SINCE\n/)
      expect((await overHttp('workers', '--label', 'zone=us', '--json')).json()).toEqual({ workers: [] })
      expect((await overHttp('workers', '--label', 'zone=us')).err).toBe(
        'Of 1 attached, no worker carries it.\n',
      )
      expect((await overHttp('workers', '--label', 'zone')).code).toBe(2)
    } finally {
      await worker.close()
    }
  })

  test('nobody there is an error', async () => {
    const { code, err } = await curfew(['list', '--manager', 'http://127.0.0.1:1', '--json'], {
      cwd: elsewhere,
    })
    expect([code, JSON.parse(err)]).toMatchObject([1, { error: { code: 'unreachable' } }])
  })
})

describe('run and resume with a process there', () => {
  test('run is its client, and brings the code that the process does not have', async () => {
    await writeFile(
      path.join(cwd, 'more.ts'),
      `import { task } from '${path.join(import.meta.dirname, '../curfew.ts')}'
export const triple = task({ name: 'triple', timeout: '1m', run: async (n: number) => n * 3 })
`,
    )
    await writeFile(
      path.join(cwd, 'triple.yml'),
      'name: triple-flow\nnodes: [{ id: only, action_id: triple, input: input, timeout: 1m }]\n',
    )
    const { code, out } = await curfew(['run', 'triple.yml', '--module', 'more.ts', '--input', '5'], { cwd })
    expect([code, out]).toEqual([0, '15\n'])
    expect(await engine.workers()).toEqual([])
  })

  test('run with a module ends where no manager answers, as it does without', async () => {
    const args = ['run', 'hang.yml', '--manager', 'http://127.0.0.1:1']
    for (const modules of [[], ['--module', 'tasks.ts']])
      expect(await errorOf(...args, ...modules)).toMatchObject({ exit: 1, code: 'unreachable' })
  })

  test('a worker whose process goes before it has taken it up is given up, and the process is lost', async () => {
    const io = new TestIo({ cwd })
    const config = await loadConfig(io, 'run', {})
    const gone = new AbortController()
    const nobody = { ...{ client: engine, via: 'process' as const, who: 'process 1', standsStill: false } }
    const process = {
      ...nobody,
      addresses: [`unix:${cwd}/nobody.sock`],
      gone: gone.signal,
      close: async () => {},
    }
    const attaching = attachWorker(io, process, config, await loadModules(['tasks.ts'], cwd))
    gone.abort()
    await expect(attaching).rejects.toMatchObject({ code: 'unreachable', message: 'process 1 is gone' })
    expect(await isLost(io, process, await attaching.catch((error: Error) => error))).toBe(true)
  })

  test('Ctrl-C cancels a run in the process that runs it', async () => {
    const io = new TestIo({ cwd })
    const ended = main(['run', 'hang.yml', '--module', 'tasks.ts'], io)
    await io.printed(/hang-flow\/only running/)
    io.send('SIGTERM')
    expect(await ended).toBe(130)
    expect(io.err).toMatch(/workflow hang-flow cancelled after/)
  })

  test('Ctrl-C of a resume leaves the work to the process that runs it', async () => {
    const id = await submit('task', 'hang')
    const io = new TestIo({ cwd })
    const ended = main(['resume', id], io)
    await io.printed(/hang running/)
    io.send('SIGINT')
    expect(await ended).toBe(130)
    expect(io.err).toContain(`It goes on: curfew watch ${id}`)
    expect(await engine.task(id).status()).toBe('running')
  })
})

/** Until an attempt of this task runs. */
async function running(name: string): Promise<void> {
  for (;;) {
    const { tasks } = await engine.list({ name, status: 'running' })
    if (tasks.length > 0) return
  }
}
