// The store keeps a limit where the runner, alive but hung, does not: that is a timeout as any other.

import { expect } from 'vitest'
import type { CliProcess } from '../../src/cli/fixtures/cli-process.ts'
import { until } from '../wait.ts'
import type { World } from './world.ts'
import { HANG, summaryOf, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }

/** The second attempt gets through. */
function pipeline(action: string): object {
  return {
    map: {
      input: { items: [{ name: 'tea' }] },
      agent_timeout_secs: 1,
      timeout_config: { cleanup_grace_period_secs: 1, timeout_action: action },
      agent_template: [
        { shell: 'echo kept > kept.txt; echo "${attempt}" >> "$MARKS/attempts"' },
        { shell: `test "\${attempt}" = 2 || { ${HANG}; }` },
      ],
    },
    reduce: [{ shell: 'echo "${map.timed_out} ${map.skipped}" > "$MARKS/reduced"' }],
  }
}

type Manager = Awaited<ReturnType<World['manager']>>

/** Its runner stands still from before its limit until the store has kept it. */
async function overruled(
  world: World,
  { args, client }: Manager,
  { file, task = '$item' }: { file: object; task?: string },
): Promise<[CliProcess, string]> {
  const known = world.runFolders()
  const pids = world.lines('pids').length
  const running = world.launch(file, { args })
  await world.untilMarked('pids', pids + 2)
  const jobId = world.runFolders().find((id) => !known.includes(id))!
  const untilStored = (type: string, command?: number) =>
    until(`${type} is stored`, 30_000, async () => {
      const { tasks } = await client.list({ parent: jobId, name: task })
      const events: { type: string; command?: number }[] = await client.task(tasks[0]!.id).events()
      return events.some((event) => event.type === type && event.command === command)
    })
  await untilStored('command_started', task === '$item' ? 1 : 0)
  running.kill('SIGSTOP')
  await untilStored('attempt_timed_out')
  return [running, jobId]
}

async function lettersOf({ client }: Manager, jobId: string) {
  const letters = []
  for await (const letter of client.deadLetters.read(jobId)) letters.push(letter)
  return letters
}

const TIMEOUT = { kind: 'agent', limitMs: 1_000, source: 'agent_timeout_secs', commandIndex: 1 }

test('J4: an item whose limit the store had to keep is told as timed out', LIMIT, async ({ world }) => {
  const manager = await world.manager()
  const [running, jobId] = await overruled(world, manager, { file: pipeline('dlq') })
  running.kill('SIGCONT')
  const ran = await world.ended(running)
  const { counts, timeouts } = summaryOf(ran)
  expect([ran.code, counts.total, counts.timedOut, counts.failed]).toEqual([1, 1, 1, 0])
  expect(timeouts).toMatchObject([TIMEOUT])
  expect(timeouts[0]!.elapsedMs).toBeGreaterThanOrEqual(3_000)
  expect(ran.stderr).toContain('limit of the agent: 1s, set by agent_timeout_secs')
  expect(world.mark('reduced')).toBe('1 0\n')

  const [letter] = await lettersOf(manager, jobId)
  expect(letter).toMatchObject({
    ...{ errorType: 'timeout', message: expect.stringContaining('Agent item-0 timed out after 1s') },
    body: {
      timeout: TIMEOUT,
      output: { stdout: 'partial\n' },
      partial: { kept: { changedFiles: ['kept.txt'] } },
    },
  })
  const stats = await world.curfew(['timeouts', 'stats', jobId, '--json', ...manager.args])
  expect(JSON.parse(stats.stdout)).toMatchObject({
    ...{ agents_started: 1, timeouts_occurred: 1, by_type: { agent: 1 }, by_command_type: { shell: 1 } },
  })
  const { stdout } = await world.curfew(['events', jobId, '--json', ...manager.args])
  const told = stdout.split('\n').filter((line) => line.includes('"timeout_occurred"'))
  expect(told).toHaveLength(1)
  expect(JSON.parse(told[0]!)).toMatchObject({ timeoutType: 'agent', limitMs: 1_000, item: 'item-0' })
  expect(world.alive()).toEqual([])
})

test('J4: timeout_action holds for it as for any other', LIMIT, async ({ world }) => {
  const manager = await world.manager()
  const ran = async (action: string) => {
    const [running, jobId] = await overruled(world, manager, { file: pipeline(action) })
    running.kill('SIGCONT')
    const { code, json } = await world.ended(running)
    return { code, json: json!, letters: await lettersOf(manager, jobId) }
  }
  const skip = await ran('skip')
  expect([skip.code, skip.json.counts.skipped, skip.letters]).toEqual([0, 1, []])

  const fail = await ran('fail')
  expect([fail.code, fail.json.status, fail.json.counts.timedOut]).toEqual([1, 'failed', 1])
  expect(fail.json.failure?.message).toMatch(/item item-0 \(tea\) timed out and timeout_action is fail/)

  const before = world.lines('attempts').length
  const retry = await ran('retry')
  expect([retry.code, retry.json.counts.successful, retry.letters]).toEqual([0, 1, []])
  expect(world.lines('attempts').slice(before)).toEqual(['1', '2'])
  expect(retry.json.timeouts).toMatchObject([TIMEOUT])
})

test('J4: also where its runner was killed before it came to itself', LIMIT, async ({ world }) => {
  const manager = await world.manager()
  const [running, jobId] = await overruled(world, manager, { file: pipeline('dlq') })
  running.kill('SIGKILL')
  await running.exited
  const ran = await world.curfew(['resume', jobId, '--json'])
  expect(summaryOf(ran).counts).toMatchObject({ total: 1, timedOut: 1 })
  expect(summaryOf(ran).timeouts).toMatchObject([TIMEOUT])
  // It was not run again.
  expect(world.lines('attempts')).toEqual(['1'])
  const [letter] = await lettersOf(manager, jobId)
  expect(letter).toMatchObject({
    ...{
      errorType: 'timeout',
      body: { timeout: TIMEOUT, partial: { kept: { changedFiles: ['kept.txt'] } } },
    },
  })
  expect(world.worktrees()).toEqual([])
})

test('J4: a phase whose limit the store had to keep says so', LIMIT, async ({ world }) => {
  const manager = await world.manager()
  const setup = { timeout: 1, commands: [{ shell: HANG }] }
  const [running] = await overruled(world, manager, { file: { ...pipeline('dlq'), setup }, task: '$phase' })
  running.kill('SIGCONT')
  const { code, json } = await world.ended(running)
  expect([code, json!.status, json!.failure]).toMatchObject([
    ...[
      1,
      'failed',
      { code: 'phase_timed_out', message: expect.stringContaining('setup: Phase setup timed out after 1s') },
    ],
  ])
  // It was not run again.
  expect(world.lines('pids')).toHaveLength(2)
})

test('J4, I2: also in an item that is worked on once more', LIMIT, async ({ world }) => {
  const manager = await world.manager()
  const { client } = manager
  const wait = 'test -e "$MARKS/go" || { echo now >> "$MARKS/waiting"; sleep 600; }'
  const running = world.launch(
    {
      map: {
        input: { items: ['tea', 'coffee'] },
        timeout_config: { timeout_policy: 'per_command', cleanup_grace_period_secs: 1 },
        agent_template: [
          { shell: 'echo "${item} ${attempt}" >> "$MARKS/attempts"' },
          { shell: HANG, timeout: 1, when: 'item == "tea"' },
          { shell: wait, when: 'item == "coffee"' },
        ],
      },
    },
    { args: manager.args },
  )
  await world.untilMarked('waiting')
  const jobId = world.runFolders()[0]!
  await until('tea timed out', 30_000, async () => (await lettersOf(manager, jobId)).length === 1)
  running.kill('SIGINT')
  await running.exited

  world.setMark('go')
  const again = world.start(['resume', jobId, '--retry-timeouts', '--json'])
  /** How often, in all tasks of items. */
  const untilStored = (wanted: string, count: number) =>
    until(`${count} ${wanted} are stored`, 30_000, async () => {
      const { tasks } = await client.list({ parent: jobId, name: '$item' })
      const events = await Promise.all(tasks.map(({ id }) => client.task(id).events()))
      const found = events.flat().filter((event) => `${event.type} ${event.command ?? ''}` === wanted)
      return found.length === count
    })
  await untilStored('command_started 1', 2)
  again.kill('SIGSTOP')
  await untilStored('attempt_timed_out ', 1)
  again.kill('SIGCONT')
  const ran = await world.ended(again)
  expect(summaryOf(ran).counts).toMatchObject({ successful: 1, timedOut: 1 })
  // It was not run a third time.
  expect(world.lines('attempts').filter((line) => line.startsWith('tea'))).toEqual(['tea 1', 'tea 2'])
  const [letter] = await lettersOf(manager, jobId)
  expect(letter!.body.history).toMatchObject([{ attempt: 1 }, { attempt: 2, timeout: { type: 'command' } }])
  const [, second] = letter!.body.history as { tookMs: number }[]
  expect(second!.tookMs).toBeGreaterThanOrEqual(3_000)
})
