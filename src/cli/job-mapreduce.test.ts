// Map-reduces among the workflows of a job, from the outside: real processes, git and signals.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { Curfew } from '../curfew.ts'
import { TemporaryRepository } from '../mapreduce/fixtures/temporary-repository.ts'
import { CliProcess, isAlive, until } from './fixtures/cli-process.ts'

// Each starts several processes, and the machine may be busy.
vi.setConfig({ testTimeout: 90_000 })

let repository: TemporaryRepository
let cwd: string
let started: CliProcess[]
beforeEach(async () => {
  repository = TemporaryRepository.begin()
  cwd = repository.top
  started = []
  await mkdir(path.join(cwd, 'jobs'))
  repository.write('.gitignore', 'curfew.db*\njobs/\n')
  repository.commit('Ignored')
})
afterEach(async () => {
  for (const one of started.toReversed()) await one.end()
  repository.remove()
})

const home = (name: string) => path.join(repository.home, name)
const say = (text: string) => `echo "${text}" >> "$HERE/told"`
const told = () => (existsSync(home('told')) ? readFileSync(home('told'), 'utf8').trim().split('\n') : [])

/** An item that fails, one that waits for a file, and others that are committed. */
const STEP = `case "\${item}" in
          bad) test -e "$HERE/mended";;
          slow) trap '' HUP; echo waits >> "$HERE/told"; until test -e "$HERE/go"; do sleep 0.05; done;;
        esac
        ${say(`\${item} \${params.size}`)}
        echo "\${item}" > "\${item}.txt" && git add . && git commit -q -m "\${item}"`

function pipeline(name: string, items: string, rest = ''): Promise<void> {
  const text = `name: ${name}
mode: mapreduce
${rest}map:
  input: { items: [${items}] }
  max_parallel: 1
  timeout_config: { cleanup_grace_period_secs: 2 }
  agent_template:
    - shell: |
        set -e
        ${STEP}
reduce:
  - shell: ${say(`${name} reduced`)}
`
  return writeFile(path.join(cwd, 'jobs', `${name}.yml`), text)
}

const SIZE = 'input: { params: { size: large } }'
const shell = (command: string, more: string) =>
  `{ ${more}, workflow: { name: said, actions: { x: { kind: shell, command: '${command}' } }, nodes: [{ id: x, action_id: x, timeout: 1m }] } }`

function job(...workflows: string[]): Promise<void> {
  return write('name: nightly', workflows)
}
function write(head: string, workflows: readonly string[]): Promise<void> {
  const list = workflows.map((one) => `  - ${one}\n`).join('')
  return writeFile(path.join(cwd, 'jobs', 'job.yml'), `${head}\nworkflows:\n${list}`)
}

function start(...args: string[]): CliProcess {
  const env = { ...repository.env, HERE: repository.home, CURFEW_STATE_DIR: home('state') }
  const made = new CliProcess(args, { cwd, env: env as Record<string, string> })
  started.push(made)
  return made
}
async function ended(...args: string[]) {
  const one = start(...args)
  return { code: await one.exited, out: one.stdout, err: one.stderr }
}
async function asked<T>(...args: string[]): Promise<T> {
  const { out, err } = await ended(...args, '--json')
  try {
    return JSON.parse(out) as T
  } catch {
    throw new Error(`${args.join(' ')}: ${out}${err}`)
  }
}
const runs = () => (existsSync(home('state/runs')) ? readdirSync(home('state/runs')) : [])

interface Listed {
  progress: { completed?: number } | null
}

interface Ended {
  id: string
  status: string
  workflows: {
    id: string
    kind: string
    status: string
    runId: string | null
    failure: { code: string } | null
  }[]
  mapreduces: Record<string, { status: string; counts: { successful: number }; deadLetters: number }>
}

test('they run in their order, with their folders, commits and parameters, and nothing is left of them', async () => {
  await pipeline('first', 'tea, milk')
  await pipeline('second', 'juice')
  await job(
    `{ id: two, mapreduce: second.yml, depends_on: one, input: { params: { size: small } } }`,
    `{ id: one, mapreduce: first.yml, ${SIZE} }`,
    shell('cat juice.txt', 'id: three, depends_on: two'),
  )
  const { code, out, err } = await ended('run', 'jobs/job.yml', '--json')
  expect(code, err).toBe(0)
  const { id, workflows, mapreduces } = JSON.parse(out) as Ended
  expect(told()).toEqual(['tea large', 'milk large', 'first reduced', 'juice small', 'second reduced'])
  expect(workflows.map((one) => [one.id, one.kind, one.status, one.runId?.[0]])).toEqual([
    ['two', 'mapreduce', 'completed', 'w'],
    ['one', 'mapreduce', 'completed', 'w'],
    ['three', 'workflow', 'completed', 'w'],
  ])
  expect(mapreduces).toMatchObject({
    one: { status: 'completed', counts: { successful: 2 }, deadLetters: 0 },
    two: { status: 'completed', counts: { successful: 1 }, deadLetters: 0 },
  })
  expect(err).toContain('map-reduce first completed')
  expect(['tea', 'milk', 'juice'].map((one) => repository.read(`${one}.txt`))).toEqual([
    'tea\n',
    'milk\n',
    'juice\n',
  ])
  expect([runs(), repository.worktrees(), repository.git('status', '--short')]).toEqual([[], [], ''])
  const explained = await ended('explain', id)
  expect(explained.out).toContain('one')
  const status = await ended('status', id)
  expect([status.code, status.out]).toEqual([0, expect.stringContaining('mapreduce')])
  const timeline = await ended('events', workflows[1]?.runId ?? '')
  expect(timeline.out).toContain('agent_completed')
})

test('items in the dead letters: it exits with 1, and they are retried by the id of their run', async () => {
  await pipeline('first', 'bad, milk')
  await job(
    `{ id: one, mapreduce: first.yml, ${SIZE} }`,
    shell('true', 'id: alarm, depends_on: one, run_if: failed'),
  )
  const { code, out, err } = await ended('run', 'jobs/job.yml', '--json')
  const { id, workflows, mapreduces } = JSON.parse(out) as Ended
  expect([code, mapreduces.one?.deadLetters, workflows.map(({ status }) => status)], err).toEqual([
    ...[1, 1, ['completed', 'cancelled']],
  ])
  const runId = workflows[0]?.runId as string
  expect(err).toContain(`curfew dlq list ${runId}`)
  const { letters } = await asked<{ letters: { jobId: string; itemId: string }[] }>('dlq', 'list', runId)
  expect(letters).toMatchObject([{ jobId: runId, itemId: 'item-0' }])
  for (const args of [['list'], ['retry'], ['discard'], ['export'], ['show', 'item-0']]) {
    const [command = '', ...items] = args
    const refused = await ended('dlq', command, id, ...items)
    expect([refused.code, refused.err]).toEqual([1, expect.stringContaining(`${runId} (one)`)])
  }
  const over = await ended('resume', runId)
  expect([over.code, over.err]).toEqual([1, expect.stringContaining(`curfew dlq list ${runId}`)])
  await writeFile(home('mended'), '')
  const retried = await ended('dlq', 'retry', runId)
  expect(retried.code, retried.err).toBe(0)
  expect(told()).toEqual(['milk large', 'first reduced', 'bad large'])
  expect(await asked('dlq', 'list', runId)).toMatchObject({ letters: [] })
})

test('a failure of one is that of the job; fail_fast stops the others, and commands with them', async () => {
  await pipeline('first', 'bad', 'error_policy: { max_failures: 1 }\n')
  await pipeline('second', 'slow')
  await write('name: nightly\nfail_fast: true', [
    shell('until grep -q waits "$HERE/told"; do sleep 0.05; done', 'id: held'),
    `{ id: one, mapreduce: first.yml, depends_on: held, ${SIZE} }`,
    `{ id: two, mapreduce: second.yml, ${SIZE} }`,
    shell(say('help').replaceAll("'", ''), 'id: alarm, depends_on: one, run_if: failed'),
  ])
  const { code, out, err } = await ended('run', 'jobs/job.yml', '--json')
  expect([code, JSON.parse(out).status], err).toEqual([1, 'failed'])
  const { workflows } = JSON.parse(out) as Ended
  expect(workflows.map(({ id, status }) => `${id} ${status}`)).toEqual([
    ...['held completed', 'one failed', 'two cancelled', 'alarm completed'],
  ])
  expect(told()).toEqual(['waits', 'help'])
  expect(repository.worktrees()).toEqual([])
})

/** Runs the job until the item that waits does. */
async function untilItWaits(...args: string[]): Promise<{ run: CliProcess; id: string }> {
  const run = start('run', 'jobs/job.yml', ...args)
  await until(() => {
    if (!run.alive) throw new Error(`it ended: ${run.stderr}`)
    return told().includes('waits')
  })
  const { works } = await asked<{ works: { id: string }[] }>('list', '--kind', 'job', ...args.slice(0, 2))
  return { run, id: works[0]?.id ?? '' }
}

/** What its commands do before its witness has ended them is not looked at. */
async function killed(run: CliProcess): Promise<void> {
  const witnesses = run.witnesses()
  run.kill('SIGKILL')
  await run.exited
  await until(() => !witnesses.some(isAlive), 'its witness is gone')
}

test('resume goes on after a kill: what is done is not done again, what waited still comes', async () => {
  await pipeline('first', 'tea, slow')
  await pipeline('second', 'juice')
  await job(
    `{ id: one, mapreduce: first.yml, ${SIZE} }`,
    `{ id: two, mapreduce: second.yml, depends_on: one, ${SIZE} }`,
  )
  const { run, id } = await untilItWaits()
  const beside = await ended('resume', id)
  expect([beside.code, beside.err]).toEqual([
    1,
    expect.stringContaining(`${id} is being run by process ${run.pid}`),
  ])
  await killed(run)
  const { workflows } = await asked<Ended>('status', id)
  const alone = await ended('resume', workflows[0]?.runId ?? '')
  expect([alone.code, alone.err]).toEqual([1, expect.stringContaining(`curfew resume ${id}`)])
  await writeFile(home('go'), '')
  const resumed = await ended('resume', id, '--json')
  expect(resumed.code, resumed.err).toBe(0)
  expect(told()).toEqual([
    ...['tea large', 'waits', 'waits', 'slow large', 'first reduced', 'juice large', 'second reduced'],
  ])
  expect(JSON.parse(resumed.out)).toMatchObject({
    status: 'completed',
    mapreduces: { one: { counts: { successful: 2 } }, two: { counts: { successful: 1 } } },
  })
  expect([runs(), repository.worktrees()]).toEqual([[], []])
})

test('a resume that is refused leaves what it found, also where the process before did not come to say that it began', async () => {
  await pipeline('first', 'slow')
  await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
  const { run, id } = await untilItWaits()
  await killed(run)
  const record = home(path.join('state/runs', runs()[0] as string, 'run.json'))
  const written = readFileSync(record, 'utf8')
  await writeFile(record, written.replace('"isStarted":true', '"isStarted":false'))
  const refused = await ended('resume', id, '--timeout', '1h')
  expect([refused.code, refused.err, runs().length]).toEqual([
    ...[2, expect.stringContaining('no limit that could be moved'), 1],
  ])
  await writeFile(home('go'), '')
  const resumed = await ended('resume', id)
  expect(resumed.code, resumed.err).toBe(0)
  expect([told(), runs()]).toEqual([['waits', 'waits', 'slow large', 'first reduced'], []])
})

test('over PostgreSQL it is the same, and a program that runs map-reduces goes on with it too', async () => {
  const store = await createDatabase(inject('postgresUrl'))
  try {
    await pipeline('first', 'tea, slow')
    await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
    const { run, id } = await untilItWaits('--store', store)
    await killed(run)
    await writeFile(home('go'), '')
    vi.stubEnv('CURFEW_STATE_DIR', home('state'))
    vi.stubEnv('HERE', repository.home)
    const engine = await Curfew.open({ store, mapreduce: true })
    try {
      expect(await engine.job(id).result()).toMatchObject({ one: { counts: { total: 2, successful: 2 } } })
      await until(() => runs().length === 0)
    } finally {
      await engine.close()
    }
    expect(told()).toEqual(['tea large', 'waits', 'waits', 'slow large', 'first reduced'])
    expect([repository.read('tea.txt'), repository.read('slow.txt'), repository.worktrees()]).toEqual([
      ...['tea\n', 'slow\n', []],
    ])
  } finally {
    vi.unstubAllEnvs()
    await dropDatabase(store)
  }
})

test('one that was cancelled while nobody ran it is cleaned up with everything else', async () => {
  await pipeline('first', 'slow')
  await pipeline('second', 'juice')
  await job(
    `{ id: one, mapreduce: first.yml, ${SIZE} }`,
    `{ id: two, mapreduce: second.yml, depends_on: one, ${SIZE} }`,
  )
  const { run, id } = await untilItWaits()
  await killed(run)
  // The second has not begun, and needs its folder all the same.
  const before = await ended('worktrees', 'clean')
  expect([before.code, runs().length], before.err).toEqual([0, 2])
  expect((await ended('cancel', id)).code).toBe(0)
  const cleaned = await ended('worktrees', 'clean')
  expect([cleaned.code, runs(), repository.worktrees()], cleaned.err).toEqual([0, [], []])
})

test('without its folder a job is not gone on with: it is told, with what to do instead', async () => {
  await pipeline('first', 'slow')
  await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
  const { run, id } = await untilItWaits()
  await killed(run)
  const env = { ...repository.env, CURFEW_STATE_DIR: home('another') } as Record<string, string>
  const elsewhere = new CliProcess(['resume', id], { cwd, env })
  started.push(elsewhere)
  expect([await elsewhere.exited, elsewhere.stderr]).toEqual([
    1,
    expect.stringMatching(
      new RegExp(`folder of workflow one of ${id}.*curfew cancel ${id} --workflow one`, 's'),
    ),
  ])
  expect((await ended('cancel', id, '--workflow', 'one')).code).toBe(0)
  const resumed = await ended('resume', id)
  expect(resumed.code, resumed.err).toBe(130)
  expect([runs(), repository.worktrees()]).toEqual([[], []])
})

describe('stopping', () => {
  test('cancel --workflow ends its commands, and with it those that wait for it; the others go on', async () => {
    await pipeline('first', 'slow, tea')
    await pipeline('second', 'juice')
    await job(
      `{ id: one, mapreduce: first.yml, ${SIZE} }`,
      `{ id: two, mapreduce: second.yml, depends_on: one, ${SIZE} }`,
      shell('until test -e "$HERE/go"; do sleep 0.05; done', 'id: other'),
    )
    const { run, id } = await untilItWaits('--json')
    const cancelled = await ended('cancel', id, '--workflow', 'one')
    expect(cancelled.code, cancelled.err).toBe(0)
    await until(async () => {
      const { workflows } = await asked<Ended>('status', id)
      return workflows.find((one) => one.id === 'one')?.status === 'cancelled'
    })
    await writeFile(home('go'), '')
    expect(await run.exited, run.stderr).toBe(130)
    const { workflows } = JSON.parse(run.stdout) as Ended
    expect(workflows.map((one) => `${one.id} ${one.status}`)).toEqual([
      ...['one cancelled', 'two cancelled', 'other completed'],
    ])
    expect(told()).toEqual(['waits'])
    expect([runs(), repository.worktrees()]).toEqual([[], []])
  })

  test('the deadline of the job ends the commands of an item: 124', async () => {
    await pipeline('first', 'slow')
    await write('name: nightly\ntimeout: 8s', [`{ id: one, mapreduce: first.yml, ${SIZE} }`])
    const { code, out, err } = await ended('run', 'jobs/job.yml', '--json')
    expect([code, JSON.parse(out)], err).toMatchObject([
      124,
      { status: 'timed_out', timeoutKind: 'job', workflows: [{ status: 'cancelled' }] },
    ])
    expect(told()).not.toContain('slow large')
    expect([repository.worktrees(), runs()]).toEqual([[], []])
  })

  test('a command without a limit that is silent is stuck; what it prints is a sign of life', async () => {
    await pipeline('first', 'tea')
    const file = path.join(cwd, 'jobs', 'first.yml')
    const silent = `until test -e "$HERE/go"; do sleep 0.05; done`
    const text = readFileSync(file, 'utf8')
    await writeFile(
      file,
      text.replace(/^reduce:.*/ms, `reduce: [{ shell: 'echo hello there; ${silent}' }]\n`),
    )
    await write('name: nightly\nstuck_after: 5s', [`{ id: one, mapreduce: first.yml, ${SIZE} }`])
    const { code, out, err } = await ended('run', 'jobs/job.yml', '--json')
    expect([code, JSON.parse(out)], err).toMatchObject([124, { status: 'timed_out', timeoutKind: 'stuck' }])
    const { works } = await asked<{ works: Listed[] }>('list', '--kind', 'task', '--all')
    expect(works.map(({ progress }) => progress?.completed ?? 0).filter(Boolean)).toEqual([12])
    expect([runs(), repository.worktrees()]).toEqual([[], []])
  })

  test('SIGINT cancels the job and waits for its commands: 130', async () => {
    await pipeline('first', 'slow')
    await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
    const { run } = await untilItWaits()
    run.kill('SIGINT')
    expect(await run.exited, run.stderr).toBe(130)
    expect([run.stderr, told(), repository.worktrees(), runs()]).toEqual([
      ...[expect.stringContaining('job nightly cancelled'), ['waits'], [], []],
    ])
  })
})

test('a manager leads the job, and its commands run here', async () => {
  const manager = start('manager', '--store', home('m.db'), '--listen', '127.0.0.1:0', '--json')
  const { addresses } = await manager.ready()
  await pipeline('first', 'tea, milk')
  await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
  const { code, out, err } = await ended('run', 'jobs/job.yml', '--manager', addresses[0] as string, '--json')
  expect(code, err).toBe(0)
  expect(JSON.parse(out)).toMatchObject({ status: 'completed', mapreduces: { one: { deadLetters: 0 } } })
  expect([told(), repository.read('milk.txt')]).toEqual([
    ['tea large', 'milk large', 'first reduced'],
    'milk\n',
  ])
})

test('SIGINT leaves a job that was resumed to its manager, and says that its commands stand still', async () => {
  const manager = start('manager', '--store', home('m.db'), '--listen', '127.0.0.1:0', '--json')
  const { addresses } = await manager.ready()
  await pipeline('first', 'slow')
  await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
  const { run, id } = await untilItWaits('--manager', addresses[0] as string)
  await killed(run)
  const resumed = start('resume', id)
  await until(() => told().length === 2)
  resumed.kill('SIGINT')
  expect([await resumed.exited, resumed.stderr]).toEqual([
    130,
    expect.stringContaining(`To go on with them: curfew resume ${id}`),
  ])
  await writeFile(home('go'), '')
  const again = await ended('resume', id)
  expect(again.code, again.err).toBe(0)
  expect(told()).toEqual(['waits', 'waits', 'waits', 'slow large', 'first reduced'])
})

test('a second run is a client of the first, and takes over when that one is killed', async () => {
  await pipeline('first', 'slow')
  await job(`{ id: one, mapreduce: first.yml, ${SIZE} }`)
  const { run } = await untilItWaits()
  await pipeline('second', 'juice, slow')
  await job(`{ id: one, mapreduce: second.yml, ${SIZE} }`)
  const heir = start('run', 'jobs/job.yml', '--json')
  await until(() => told().filter((one) => one === 'waits').length === 2)
  await killed(run)
  await until(() => heir.stderr.includes(`process ${run.pid} is gone`))
  await writeFile(home('go'), '')
  expect(await heir.exited, heir.stderr).toBe(0)
  // What it ran meanwhile went on.
  expect(told()).toEqual(['waits', 'juice large', 'waits', 'slow large', 'second reduced'])
})
