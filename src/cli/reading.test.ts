import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { agent, Curfew, job, task, workflow } from '../curfew.ts'
import type { FilledStore } from './fixtures/store.ts'
import { fillStore } from './fixtures/store.ts'
import { curfew } from './fixtures/test-io.ts'

let cwd: string
let ids: FilledStore

beforeAll(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  ids = await fillStore(path.join(cwd, 'curfew.db'))
})

afterAll(async () => {
  await rm(cwd, { recursive: true, force: true })
})

/** A command that must succeed, its document. */
async function document(...args: string[]): Promise<Record<string, unknown>> {
  const io = await curfew([...args, '--json'], { cwd })
  expect({ code: io.code, err: io.err }).toEqual({ code: 0, err: expect.not.stringContaining('error') })
  return io.json() as Record<string, unknown>
}

async function errorOf(...args: string[]): Promise<{ exit: number; code: string; hint: string | null }> {
  const { code, out, err } = await curfew([...args, '--json'], { cwd })
  expect(out).toBe('')
  const line = err.split('\n').find((one) => one.startsWith('{"error"')) ?? '{}'
  return { exit: code, ...JSON.parse(line).error }
}

describe('status', () => {
  test('shows the record', async () => {
    const { code, out } = await curfew(['status', ids.added], { cwd })
    expect(code).toBe(0)
    expect(out).toMatch(/^task add is completed\n/)
    expect(out).toMatch(/\n {2}key +k-1\n/)
    expect(out).toMatch(/\n {2}progress +100% \(2\/2\)\n/)
    expect(out).toMatch(/\n {2}output +3\n/)
  })

  test('exits 0 however the work ended, and shows why; nothing of it reaches the terminal raw', async () => {
    const { code, out } = await curfew(['status', ids.failed], { cwd, terminal: true })
    expect(code).toBe(0)
    expect(out).toContain('\x1b[31mfailed\x1b[39m')
    expect(out).toContain('failed: it \\x1b[31mbroke')
  })

  test('of a timeout tells which it was', async () => {
    const { out } = await curfew(['status', ids.timedOut], { cwd })
    expect(out).toMatch(/timeout +execution after 30ms/)
  })

  test('of a job lists its workflows', async () => {
    const { out } = await curfew(['status', ids.job], { cwd })
    expect(out).toMatch(/WORKFLOW +STATUS +RUNS +ID +WAITS FOR\n/)
    expect(out).toMatch(/\nsum +completed +workflow sums +w_/)
    expect(out).toMatch(/\ntell +pending +task add +sum wait\n/)
  })

  test('of a workflow lists its tokens', async () => {
    const { out } = await curfew(['status', ids.flow], { cwd })
    expect(out).toMatch(/NODE +STATUS +ID\nfirst +completed +t_\w+\nsecond +completed +t_/)
  })

  test('--json is the record, with its output as a value', async () => {
    expect(await document('status', ids.added)).toMatchObject({
      ...{ id: ids.added, kind: 'task', status: 'completed', settled: true, output: 3, key: 'k-1' },
    })
    expect(await document('status', ids.job)).toMatchObject({
      workflows: [{ id: 'sum' }, { id: 'wait' }, {}],
    })
    expect(await document('status', ids.flow)).toMatchObject({ run: { tokens: [{ node: 'first' }, {}] } })
  })

  test.each(['t_0', 'j_0', 'nonsense'])('an unknown id (%s) is an error with 1', async (id) => {
    expect(await errorOf('status', id)).toMatchObject({ exit: 1, code: 'not_found' })
  })
})

describe('list', () => {
  test('lists the newest first, and says that nobody works on it', async () => {
    const { code, out, err } = await curfew(['list'], { cwd })
    expect(code).toBe(0)
    expect(out).toMatch(/^ID +KIND +NAME +STATUS +AGE +TOOK +LEFT\n/)
    expect(out).toContain(ids.added)
    expect(err).toContain('Nobody works on curfew.db')
  })

  test('filters', async () => {
    const listed = async (...args: string[]) => {
      const { works } = (await document('list', ...args)) as { works: { id: string }[] }
      return works.map(({ id }) => id).toSorted()
    }
    expect(await listed('--kind', 'job')).toEqual([ids.job])
    expect(await listed('--status', 'failed,timed_out')).toEqual([ids.failed, ids.timedOut].toSorted())
    expect(await listed('--status', 'failed', '--status', 'timed_out')).toHaveLength(2)
    expect(await listed('--name', 'later')).toEqual([ids.delayed])
    expect(await listed('--queue', 'night')).toEqual([ids.delayed])
    expect(await listed('--timeout-kind', 'execution')).toEqual([ids.timedOut])
    expect(await listed('--parent', ids.flow)).toHaveLength(2)
    expect(await listed('--parked')).toEqual([])
  })

  test('goes on where a page ended', async () => {
    const all = (await document('list', '--all')) as { works: { id: string }[]; cursor: null }
    expect(all.cursor).toBe(null)
    const first = (await document('list', '--limit', '3')) as { works: { id: string }[]; cursor: string }
    const rest = (await document('list', '--all', '--cursor', first.cursor)) as { works: { id: string }[] }
    expect([...first.works, ...rest.works].map(({ id }) => id)).toEqual(all.works.map(({ id }) => id))
    const { err } = await curfew(['list', '--limit', '3'], { cwd })
    expect(err).toContain(`There are more: --cursor ${first.cursor}, or --all.`)
  })

  test('fits the terminal', async () => {
    const { out } = await curfew(['list'], { cwd, terminal: true, columns: 70, env: { NO_COLOR: '1' } })
    for (const line of out.trimEnd().split('\n')) expect(line.length).toBeLessThanOrEqual(70)
  })

  test('with nothing to show says so', async () => {
    const { code, out, err } = await curfew(['list', '--name', 'nobody'], { cwd })
    expect([code, out]).toEqual([0, ''])
    expect(err).toContain('There is none.')
  })

  test.each([
    [['--status', 'faild'], "Did you mean 'failed'?"],
    [['--kind', 'workflw'], "Did you mean 'workflow'?"],
    [['--limit', '0'], null],
    [['--limit', 'ten'], null],
    [['--timeout-kind', 'never'], null],
  ])('%j is wrong usage', async (args, hint) => {
    expect(await errorOf('list', ...args)).toMatchObject({ exit: 2, code: 'usage', hint })
  })
})

describe('explain', () => {
  test('prints the tree with the limits and the one that binds', async () => {
    const { code, out } = await curfew(['explain', ids.job], { cwd })
    expect(code).toBe(0)
    expect(out).toMatch(/^nightly job j_\w+ running\n│ /)
    expect(out).toMatch(/│ timeout 1h \(job\), set by definition, ends in \S+ ← binds\n/)
    expect(out).toMatch(/\n├─ sum workflow sums w_\w+ completed\n/)
    expect(out).toMatch(/\n│ {2}├─ first task add t_\w+ completed\n/)
    expect(out).toMatch(
      /set by definition, ends in \S+\n {5}bound by the job limit of nightly, which ends in \S+\n$/,
    )
    expect(out).toMatch(/\n└─ wait agent ask g_\w+ running\n {5}waits since /)
  })

  test('--json is the explanation', async () => {
    const explained = await document('explain', ids.asking)
    expect(explained).toMatchObject({ id: ids.asking, binding: { kind: 'agent', id: ids.asking }, below: [] })
  })

  test('an unknown id is an error', async () => {
    expect(await errorOf('explain', 'w_0')).toMatchObject({ exit: 1, code: 'not_found' })
  })
})

describe('events', () => {
  test('prints one a line', async () => {
    const { code, out } = await curfew(['events', ids.failed], { cwd })
    expect(code).toBe(0)
    const lines = out.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^ {2}1 {2}\d{4}-\d\d-\d\dT[\d:.]+Z {2}task_scheduled {2}startAt=\d+$/)
    expect(lines.at(-1)).toMatch(/task_failed .*failure=\{"code":"failed","message":"it \\u001b\[31mbroke"/)
  })

  test('--json prints one object a line, --after leaves out what is known', async () => {
    const { out } = await curfew(['events', ids.added, '--json', '--after', '1'], { cwd })
    const events = out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(events[0]).toMatchObject({ seq: 2, type: 'attempt_started', taskId: ids.added })
    expect(events.at(-1)).toMatchObject({ type: 'task_completed' })
  })

  test('--follow of what has ended ends', async () => {
    const { code, out } = await curfew(['events', ids.added, '--follow'], { cwd })
    expect([code, out.trimEnd().split('\n').length]).toEqual([0, 3])
  })

  test('--follow of what stands still says so', async () => {
    const { code, out, err } = await curfew(['events', ids.asking, '-f'], { cwd })
    expect(code).toBe(1)
    expect(out).toContain('agent_started')
    expect(err).toContain('nobody works on')
  })

  test.each([
    ['--after', '-1'],
    ['--after', 'x'],
  ])('%s %s is wrong usage', async (...args) => {
    expect(await errorOf('events', ids.added, ...args)).toMatchObject({ exit: 2, code: 'usage' })
  })
})

describe('watch with nobody working', () => {
  test('shows what has ended, and exits as it ended', async () => {
    const ended = async (id: string) => (await curfew(['watch', id], { cwd })).code
    expect(await Promise.all([ids.added, ids.failed, ids.timedOut].map(ended))).toEqual([0, 1, 124])
    const { out } = await curfew(['watch', ids.flow], { cwd })
    expect(out).toMatch(/^sums\/first completed .*\nsums\/second completed .*\nsums completed/)
  })

  test('shows what stands still, and fails', async () => {
    const { code, out, err } = await curfew(['watch', ids.job], { cwd })
    expect(code).toBe(1)
    expect(out).toMatch(/nightly running .*left \(job\)\n/)
    expect(err).toContain('nobody works on')
  })

  test('--json prints a line', async () => {
    const { code, out } = await curfew(['watch', ids.added, '--json'], { cwd })
    expect(code).toBe(0)
    expect(JSON.parse(out)).toMatchObject({ work: { output: 3 }, final: true, lastSequence: 3 })
  })
})

describe('timeouts list', () => {
  test('lists every limit in force, the soonest first', async () => {
    const { limits } = (await document('timeouts', 'list')) as {
      limits: { id: string; kind: string; deadlineAt: number; remainingMs: number }[]
    }
    expect(limits.map(({ deadlineAt }) => deadlineAt)).toEqual(
      limits.map(({ deadlineAt }) => deadlineAt).toSorted((a, b) => a - b),
    )
    const of = (id: string) => limits.filter((one) => one.id === id).map(({ kind }) => kind)
    expect([of(ids.job), of(ids.asking), of(ids.delayed), of(ids.added)]).toEqual([
      ['job'],
      ['agent'],
      ['total'],
      [],
    ])
    const { out } = await curfew(['timeouts', 'list'], { cwd })
    expect(out).toMatch(/^LEFT +LIMIT +OF +ID +LENGTH +OPTION +SET BY\n/)
  })

  test('of one piece of work includes what is below it', async () => {
    const { limits } = (await document('timeouts', 'list', ids.job)) as { limits: { name: string }[] }
    expect(limits.map(({ name }) => name).toSorted()).toEqual(['ask', 'nightly'])
  })

  test('also of what is open below work that has ended', async () => {
    const later = task({ name: 'later', timeout: '2h', run: () => 1 })
    const leaves = agent({
      name: 'leaves',
      run: async (_: null, ctx) => ctx.schedule(later, null, { delay: '1h', detached: true }).id,
    })
    const engine = await Curfew.open({
      ...{ store: path.join(cwd, 'left.db'), listen: false, agents: [leaves] },
    })
    const id = await engine
      .start(leaves, null)
      .then((handle) => handle.result())
      .finally(() => engine.close())
    expect(await document('timeouts', 'list', '--store', 'left.db')).toMatchObject({ limits: [{ id }] })
  })

  test('also of joins, wherever their workflow runs, with a timeout or without', async () => {
    const go = task({ name: 'go', run: () => 1 })
    const later = task({ name: 'later', run: () => 1 })
    const joins = workflow({
      name: 'joins',
      timeout: null,
      actions: { go, later },
      nodes: [
        { id: 'start' },
        { id: 'go', actionId: 'go' },
        { id: 'later', actionId: 'later' },
        { id: 'end' },
      ],
      transitions: [
        { from: 'start', to: 'go', siblingGroup: 'both' },
        { from: 'start', to: 'later', siblingGroup: 'both' },
        {
          id: 'a',
          from: 'go',
          to: 'end',
          synchronization: { strategy: 'all', siblingGroup: 'both', timeout: '1h' },
        },
        {
          id: 'b',
          from: 'later',
          to: 'end',
          synchronization: { strategy: 'all', siblingGroup: 'both', timeout: '1h' },
        },
      ],
    })
    const store = path.join(cwd, 'joins.db')
    const engine = await Curfew.open({ store, listen: false, tasks: [go], workflows: [] })
    try {
      const handle = await engine.submit(job({ workflows: [{ id: 'inner', workflow: joins }] }))
      const waits = async () => {
        const [inner] = await handle.workflows()
        return inner?.runId ? (await engine.workflow(inner.runId).run()).joins[0]?.deadlineAt : null
      }
      while (!(await waits())) await handle.view()
    } finally {
      await engine.close()
    }
    expect(await document('timeouts', 'list', '--store', 'joins.db')).toMatchObject({
      limits: [{ name: 'joins', title: 'inner', kind: 'synchronization', option: 'a', timeoutMs: 3_600_000 }],
    })
  })

  test('--limit says how many are left out', async () => {
    const { out, err } = await curfew(['timeouts', 'list', '--limit', '1'], { cwd })
    expect(out.trimEnd().split('\n')).toHaveLength(2)
    expect(err).toMatch(/\d more end later/)
  })
})

test('workers of a store that nobody works on: none', async () => {
  expect(await document('workers')).toEqual({ workers: [] })
  const { err } = await curfew(['workers'], { cwd })
  expect(err).toContain('No worker is attached.')
})

test('looking leaves the store as it is, and nothing beside it', async () => {
  const before = await readdir(cwd)
  await curfew(['list'], { cwd })
  await curfew(['explain', ids.job], { cwd })
  expect(await readdir(cwd)).toEqual(before)
})

describe('what to talk to', () => {
  test('a store that is not there is not made', async () => {
    const empty = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
    try {
      for (const args of [
        ['list'],
        ['cancel', 't_0'],
        ['timeouts', 'extend', 't_0', '1m'],
        ['signal', 'g_0', 'x'],
        ['resume', 'g_0'],
        ['resume', 'g_0', '--timeout', '1h'],
      ]) {
        const { code, err } = await curfew(args, { cwd: empty })
        expect([args, code, err]).toEqual([args, 1, expect.stringContaining('there is no store')])
      }
      expect(await readdir(empty)).toEqual([])
    } finally {
      await rm(empty, { recursive: true, force: true })
    }
  })

  test('a flag and the environment name it; the flag wins', async () => {
    const elsewhere = { cwd: tmpdir(), env: { CURFEW_STORE: path.join(cwd, 'curfew.db') } }
    expect((await curfew(['list'], elsewhere)).code).toBe(0)
    expect((await curfew(['list', '--store', path.join(cwd, 'gone.db')], elsewhere)).code).toBe(1)
    const flag = await curfew(['list', '--store', 'curfew.db'], {
      cwd,
      env: { CURFEW_MANAGERS: 'http://127.0.0.1:1' },
    })
    expect(flag.code).toBe(0)
  })

  test('a manager and a store at once are refused', async () => {
    expect(await errorOf('list', '--manager', 'http://127.0.0.1:1', '--store', 'curfew.db')).toMatchObject({
      ...{ exit: 2, code: 'usage', message: '--manager and --store cannot both be given' },
    })
  })

  test(':memory: is refused', async () => {
    expect(await errorOf('list', '--store', ':memory:')).toMatchObject({ exit: 2, code: 'usage' })
  })
})
