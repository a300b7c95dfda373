// A run whose process dies, or is told to stop, goes on where it was.

import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect } from 'vitest'
import { isAlive } from '../../src/cli/fixtures/cli-process.ts'
import { until } from '../wait.ts'
import type { World } from './world.ts'
import { HANG, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }
const AGENT_SECS = 2

/** What ran, with which attempt. */
const TOLD = 'echo "${item.n} ${attempt}" >> "$MARKS/ran"'
/** Hangs until the test lets it go on. */
const UNLESS_GO = `test -e "$MARKS/go" || { echo now >> "$MARKS/hanging"; ${HANG}; }`

/** Item 0 ends well, 1 times out, 2 is at work when something happens, 3 and 4 wait. */
function pipeline(map: object = {}, rest: object = {}): object {
  return {
    map: {
      input: { items: [0, 1, 2, 3, 4].map((n) => ({ n })) },
      ...{ max_parallel: 1, agent_timeout_secs: AGENT_SECS },
      timeout_config: { cleanup_grace_period_secs: 1 },
      ...map,
      agent_template: [
        { shell: TOLD },
        { shell: `test -e "$MARKS/mended" || { ${HANG}; }`, when: 'item.n == 1' },
        { shell: UNLESS_GO, when: 'item.n == 2' },
      ],
    },
    reduce: [{ shell: 'echo ${map.successful} of ${map.total} > "$MARKS/reduced"' }],
    ...rest,
  }
}

/** Killed while item 2 is at work. Answers the id of the run. */
async function killedRun(world: World, definition = pipeline()): Promise<string> {
  const running = world.launch(definition)
  await world.untilMarked('hanging')
  running.kill('SIGKILL')
  await running.exited
  await until('its commands are ended', 20_000, () => world.alive().length === 0)
  const [jobId, ...more] = world.runFolders()
  expect(more).toEqual([])
  return jobId!
}

function resultsOf(world: World, jobId: string) {
  const text = readFileSync(path.join(world.runs, jobId, 'results.jsonl'), 'utf8')
  const lines = text.trimEnd().split('\n')
  // Of several about one item the last counts.
  return [...new Map(lines.map((line) => JSON.parse(line)).map((one) => [one.id, one])).values()]
}

function recordOf(world: World, jobId: string) {
  return JSON.parse(readFileSync(path.join(world.runs, jobId, 'run.json'), 'utf8'))
}

test(
  'I1, I2: after kill -9 nothing that ended is run again, and the rest runs within the same limits',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    const results = resultsOf(world, jobId)
    expect(results.map(({ id }) => id)).toEqual(['item-0', 'item-1'])
    const timedOut = results[1]
    expect(timedOut).toMatchObject({
      status: 'timed_out',
      attempts: [{ attempt: 1, timeout: { type: 'agent', limitMs: 2_000, source: 'agent_timeout_secs' } }],
    })
    expect(timedOut.attempts[0].timeout.elapsedMs).toBeGreaterThanOrEqual(2_000)
    expect(recordOf(world, jobId)).toMatchObject({
      jobId,
      model: { map: { agentTimeoutMs: 2_000, graceMs: 1_000, maxParallel: 1 } },
    })

    world.setMark('go')
    const { code, json } = await world.curfew(['resume', jobId, '--json'])
    expect([code, json?.status]).toEqual([1, 'completed'])
    expect(json?.counts).toMatchObject({ total: 5, successful: 4, timedOut: 1, waiting: 0, running: 0 })
    expect(world.lines('ran')).toEqual(['0 1', '1 1', '2 1', '2 2', '3 1', '4 1'])
    expect(world.mark('reduced')).toBe('4 of 5\n')
    expect(world.worktrees()).toEqual([])
    expect(world.alive()).toEqual([])
  },
)

test('I2: with --retry-timeouts those that timed out are worked on once more', LIMIT, async ({ world }) => {
  const jobId = await killedRun(world)
  world.setMark('go')
  world.setMark('mended')
  const { code, json } = await world.curfew(['resume', jobId, '--retry-timeouts', '--json'])
  expect([code, json?.counts]).toMatchObject([0, { total: 5, successful: 5, timedOut: 0 }])
  expect(world.lines('ran').filter((line) => line.startsWith('1 '))).toHaveLength(2)
  expect(world.lines('ran').filter((line) => line.startsWith('0 '))).toHaveLength(1)
  expect(world.mark('reduced')).toBe('5 of 5\n')
  // It was given up, and is done after all.
  expect(await world.letters(jobId)).toMatchObject([{ itemId: 'item-1', state: 'resolved' }])
})

test('I2: one that is cancelled meanwhile leaves them in the dead letters', LIMIT, async ({ world }) => {
  const jobId = await killedRun(world)
  world.setMark('go')
  const again = world.start(['resume', jobId, '--retry-timeouts', '--agent-timeout', '60s', '--json'])
  await until('item 1 is worked on again', 40_000, () => world.lines('ran').includes('1 2'))
  await world.curfew(['cancel', jobId])
  const { json } = await world.ended(again)
  expect(json).toMatchObject({ status: 'cancelled', counts: { cancelled: 1 }, deadLetters: 1, notes: [] })
  world.setMark('mended')
  const retried = await world.curfew(['dlq', 'retry', jobId, '--json'])
  expect([retried.code, retried.json?.counts], retried.stderr).toMatchObject([0, { successful: 1 }])
  expect(await world.letters(jobId)).toMatchObject([{ itemId: 'item-1', state: 'resolved' }])
})

test(
  'I3: what a dead run left running is ended first, and its item has a new attempt with all its time',
  LIMIT,
  async ({ world }) => {
    // It uses most of its limit both times.
    const slow =
      'test -e "$MARKS/go" && sleep 1.2 || { echo now >> "$MARKS/hanging"; sleep 600 & echo $! >> "$MARKS/pids"; wait; }'
    const look =
      'for pid in $(cat "$MARKS/pids" 2> /dev/null); do grep -s "^State:.[^ZX]" /proc/$pid/status >> "$MARKS/met"; done; true'
    const definition = {
      map: {
        input: { items: [{ n: 1 }] },
        agent_timeout_secs: AGENT_SECS,
        agent_template: [{ shell: TOLD }, { shell: look }, { shell: slow }],
      },
    }
    const running = world.launch(definition)
    await world.untilMarked('pids')
    // Nobody is there to tidy up.
    const all = [running.pid, ...running.witnesses()]
    expect(all).toHaveLength(2)
    for (const pid of all) process.kill(pid, 'SIGSTOP')
    for (const pid of all.toReversed()) process.kill(pid, 'SIGKILL')
    await running.exited
    const [orphan] = world.lines('pids').map(Number)
    expect(isAlive(orphan!)).toBe(true)
    world.setMark('go')
    const { code, json } = await world.curfew(['resume', world.runFolders()[0]!, '--json'])
    expect([code, json?.counts.successful, json?.timeouts]).toEqual([0, 1, []])
    expect(world.lines('ran')).toEqual(['1 1', '1 2'])
    expect(world.lines('met')).toEqual([])
    expect(isAlive(orphan!)).toBe(false)
  },
)

test('I4: a limit that is set on resume holds from then on, and is on record', LIMIT, async ({ world }) => {
  const jobId = await killedRun(world, pipeline({ agent_timeout_secs: 3 }))
  const refused = await world.curfew(['resume', jobId, '--agent-timeout', '1', '--concurrency', '2'])
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('by max_parallel')])
  const { json } = await world.curfew(['resume', jobId, '--agent-timeout', '1', '--json'])
  expect(json?.counts).toMatchObject({ total: 5, successful: 3, timedOut: 2 })
  const [, again] = json!.timeouts.toSorted((a, b) => a.itemId.localeCompare(b.itemId))
  expect(again).toMatchObject({ itemId: 'item-2', limitMs: 1_000 })
  expect(again!.elapsedMs).toBeGreaterThanOrEqual(1_000)
  expect(again!.elapsedMs).toBeLessThanOrEqual(3_000)
  const { overrides, model } = recordOf(world, jobId)
  expect([overrides, model.map.agentTimeoutMs]).toMatchObject([[{ agentTimeoutMs: 1_000 }], 1_000])
  expect(world.alive()).toEqual([])
})

test(
  'I5: SIGINT ends the commands, exits 130 and leaves the run to be resumed, by one at a time',
  LIMIT,
  async ({ world }) => {
    const definition = pipeline({ agent_timeout_secs: 20, max_parallel: 5 })
    ;(definition as { map: { agent_template: object[] } }).map.agent_template.splice(1, 1)
    const running = world.launch(definition)
    await world.untilMarked('hanging')
    await until('the others are done', 30_000, () => /item-4 successful/.test(running.stderr))
    running.kill('SIGINT')
    const { code, json, stderr } = await world.ended(running)
    expect([code, json?.status]).toEqual([130, 'interrupted'])
    expect(world.alive()).toEqual([])
    const { jobId } = json!
    expect(stderr).toContain(`curfew resume ${jobId}`)
    await world.nothingLeft()

    const first = world.start(['resume', jobId, '--json'])
    await world.untilMarked('hanging', 2)
    const others = [world.curfew(['resume', jobId, '--json']), world.curfew(['resume', jobId, '--json'])]
    for (const other of await Promise.all(others)) {
      expect([other.code, other.stdout]).toEqual([1, ''])
      expect(other.stderr).toContain(`${jobId} is being run by process ${first.pid}`)
    }
    first.kill('SIGINT')
    expect(await first.exited).toBe(130)
    world.setMark('go')
    const third = await world.curfew(['resume', jobId, '--json'])
    expect([third.code, third.json?.counts]).toMatchObject([0, { total: 5, successful: 5 }])
    expect(world.lines('ran').toSorted()).toEqual(['0 1', '1 1', '2 1', '2 2', '2 3', '3 1', '4 1'])
    expect(world.worktrees()).toEqual([])
  },
)

test(
  'I5: two resumes of a dead run at the same moment: one runs it, the other is refused',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    world.setMark('go')
    const both = await Promise.all([
      world.curfew(['resume', jobId, '--json']),
      world.curfew(['resume', jobId, '--json']),
    ])
    const [ran, refused] = both[0].json ? both : both.toReversed()
    expect(ran!.json?.counts).toMatchObject({ total: 5, successful: 4, timedOut: 1 })
    expect(refused!.code).not.toBe(0)
    expect(refused!.stderr + refused!.stdout).toMatch(/is being run by process/)
    expect(world.lines('ran')).toEqual(['0 1', '1 1', '2 1', '2 2', '3 1', '4 1'])
  },
)

test('resume of a run whose folder is gone says so', LIMIT, async ({ world }) => {
  const jobId = await killedRun(world)
  rmSync(path.join(world.runs, jobId), { recursive: true })
  const { code, stdout, stderr } = await world.curfew(['resume', jobId])
  expect([code, stdout]).toEqual([1, ''])
  expect(stderr).toContain(`the folder of ${jobId} is gone`)
  expect(stderr).toContain(path.join(world.runs, jobId))
  expect(stderr).toContain(`curfew cancel ${jobId}`)
})

test(
  'rubbish in the folder of a run does not hinder it; what it cannot do without is named',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    const folder = path.join(world.runs, jobId)
    for (const name of ['rubbish', 'worktrees/a file', 'runner.lock'])
      writeFileSync(path.join(folder, name), '{ rubbish')
    appendFileSync(path.join(folder, 'results.jsonl'), 'rubbish\n{"id":"item-77"}\n{ rubbish')
    world.setMark('go')
    const { code, json, stderr } = await world.curfew(['resume', jobId, '--json'])
    expect([code, stderr]).toEqual([1, expect.stringContaining('map-reduce main completed')])
    expect(json?.counts).toMatchObject({ total: 5, successful: 4, timedOut: 1 })
    expect(world.worktrees()).toEqual([])
  },
)

test('a run whose record is broken is refused with the name of the file', LIMIT, async ({ world }) => {
  const jobId = await killedRun(world)
  writeFileSync(path.join(world.runs, jobId, 'run.json'), '{ rubbish')
  const { code, stderr } = await world.curfew(['resume', jobId])
  expect(code).toBe(1)
  expect(stderr).toContain(path.join(world.runs, jobId, 'run.json'))
  expect(stderr).not.toContain('something unexpected')
})

test('I2: a run whose runner is killed again and again can still be resumed', LIMIT, async ({ world }) => {
  const jobId = await killedRun(world)
  for (let killed = 2; killed <= 5; killed++) {
    const resumed = world.start(['resume', jobId])
    await world.untilMarked('hanging', killed)
    resumed.kill('SIGKILL')
    await resumed.exited
    await until('its commands are ended', 20_000, () => world.alive().length === 0)
  }
  world.setMark('go')
  const { code, json } = await world.curfew(['resume', jobId, '--json'])
  expect([code, json?.status]).toEqual([1, 'completed'])
  expect(json?.counts).toMatchObject({ total: 5, successful: 4, timedOut: 1 })
})

test(
  'I2: from another folder it goes on in the store it is in, and never a second time',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    world.setMark('go')
    const elsewhere = mkdtempSync(path.join(os.tmpdir(), 'curfew-elsewhere-'))
    try {
      const other = path.join(elsewhere, 'other.db')
      const refused = await world.curfew(['resume', jobId, '--store', other])
      expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('curfew.db')])
      const { code, json } = await world.ended(world.start(['resume', jobId, '--json'], {}, elsewhere))
      expect([code, json?.counts.successful]).toEqual([1, 4])
      expect(readdirSync(elsewhere)).toEqual([])
    } finally {
      rmSync(elsewhere, { recursive: true })
    }
    expect(world.lines('ran')).toEqual(['0 1', '1 1', '2 1', '2 2', '3 1', '4 1'])
  },
)
