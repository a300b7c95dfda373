import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Clock } from '../core/clock.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import { SystemClock } from '../core/system-clock.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import { task } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptCallbacks } from './attempt.ts'
import {
  assignmentOf,
  clock,
  endTree,
  isUntouched,
  processIn,
  readIfThere,
  stateOf,
  temporaryFolder,
  until,
} from './fixtures/process-probe.ts'
import * as tasks from './fixtures/process-tasks.ts'
import { startProcessAttempt } from './process-attempt.ts'
import type { ProcessEntry } from './process-table.ts'
import { killMarked } from './process-tree.ts'
import { Supervisor } from './supervisor.ts'

const nodeId = `n_attempts_${process.pid}`
const lines: { level: string; fields: object; message: string }[] = []
const line = (level: string) => (fields: object, message: string) => lines.push({ level, fields, message })
const logger = { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') }
let supervisor: Supervisor
let dir: string

beforeAll(async () => {
  supervisor = await Supervisor.start({ nodeId, clock, logger, obituary: null })
})

beforeEach(() => {
  dir = temporaryFolder()
  lines.length = 0
})

afterEach(async () => {
  const leftover = await killMarked({ nodeId }, { clock, table: supervisor.table })
  endTree(dir)
  rmSync(dir, { recursive: true, force: true })
  expect(leftover.killed).toBe(false)
})

afterAll(() => supervisor.close())

type Beat = Parameters<AttemptCallbacks['beat']>[0]

function start(
  definition: TaskDefinition,
  assignment: Assignment = assignmentOf(definition.name),
  processClock: Clock = clock,
) {
  const beats: Beat[] = []
  const callbacks: AttemptCallbacks = {
    beat: (beat) => beats.push(beat),
    extend: async ({ requestId, progress }): Promise<ExtensionAnswer> => {
      if (requestId === 'refused') throw Object.assign(new Error('no manager'), { code: 'unreachable' })
      return { granted: true, ms: (progress.fraction ?? 0) * 1000, remaining: 4, warning: false }
    },
  }
  const attempt = startProcessAttempt(definition, assignment, callbacks, {
    nodeId,
    supervisor,
    clock: processClock,
    logger,
  })
  return { attempt, beats }
}

const named = (name: string, file = tasks.double.file as string) =>
  task({ name, isolation: 'process', file, run: () => 'ran in the worker' })

describe('a handler in a process of its own', () => {
  test('completes with its output', async () => {
    const { attempt } = start(tasks.double, assignmentOf('double', { n: 21 }))
    expect(await attempt.ended).toEqual({ type: 'completed', output: '{"doubled":42}' })
  })

  test('runs elsewhere, and is told what an inline handler is told', async () => {
    const assignment = assignmentOf('inside', null, {
      attempt: 3,
      attemptMs: 9_000,
      totalMs: 5_000,
      details: '{"page":7}',
    })
    const end = await start(tasks.listed[0]!, assignment).attempt.ended
    const output = JSON.parse((end as { output: string }).output)
    expect(output).toMatchObject({ inside: true, attempt: 3, previous: { page: 7 } })
    expect(output.pid).not.toBe(process.pid)
    expect(output.remaining).toBeGreaterThan(0)
    expect(output.remaining).toBeLessThan(5_000)
  })

  test('is charged the time that its process takes to start', async () => {
    class LeapingClock extends SystemClock {
      leapMs = 0
      override monotonic(): number {
        return super.monotonic() + this.leapMs
      }
    }
    const leaping = new LeapingClock()
    const assignment = assignmentOf('inside', null, { attemptMs: 5_000 })
    const { attempt } = start(tasks.listed[0]!, assignment, leaping)
    leaping.leapMs = 3_000 // it has not started yet
    const { remaining } = JSON.parse(((await attempt.ended) as { output: string }).output)
    expect(remaining).toBeLessThan(2_000)
  })

  test('fails with the failure it throws', async () => {
    expect(await start(tasks.default.throwing).attempt.ended).toMatchObject({
      type: 'failed',
      failure: { code: 'no_file', message: 'no such file', retryable: false, details: { path: '/x' } },
    })
  })

  test('fails for good when its output cannot be stored', async () => {
    expect(await start(tasks.default.unstorable).attempt.ended).toMatchObject({
      type: 'failed',
      failure: { code: 'invalid_json', retryable: false },
    })
  })

  test('can return an output larger than a pipe holds', async () => {
    const end = await start(tasks.default.big).attempt.ended
    expect((end as { output: string }).output).toHaveLength(900_002)
  })

  test('has ended although its event loop still holds something', async () => {
    const { attempt } = start(tasks.lingering, assignmentOf('lingering', { dir }))
    expect(await attempt.ended).toEqual({ type: 'completed', output: '"done"' })
    expect(readIfThere(join(dir, 'exited'))).toBe('yes')
  })

  test('that nobody exports is not found', async () => {
    const missing = await start(named('nowhere')).attempt.ended
    const file = tasks.double.file
    expect(missing).toMatchObject({
      failure: { code: 'task_not_found', retryable: false, details: { file, name: 'nowhere' } },
    })
    const broken = new URL('./fixtures/broken-module.ts', import.meta.url).href
    expect(await start(named('any', broken)).attempt.ended).toMatchObject({
      failure: {
        code: 'task_not_found',
        retryable: false,
        cause: { message: expect.stringMatching(/does things when it is imported/) },
      },
    })
  })

  test('that exits or dies of an exception fails with how it died', async () => {
    expect(await start(tasks.default.exiting).attempt.ended).toMatchObject({
      failure: { code: 'process_died', retryable: true, details: { exitCode: 7, signal: null } },
    })
    expect(await start(tasks.default.crashing).attempt.ended).toMatchObject({
      failure: { code: 'process_died', details: { exitCode: 1 }, cause: { message: 'nobody caught this' } },
    })
  })

  test('logs, reports, asks for time and learns of new limits through its worker', async () => {
    const { attempt, beats } = start(tasks.talking)
    await until('the report', () => beats.length > 0)
    attempt.setDeadline(42, 60_000)
    const end = await attempt.ended
    expect(JSON.parse((end as { output: string }).output)).toMatchObject({
      answer: { granted: true, ms: 500 },
      refused: 'unreachable',
      remaining: expect.closeTo(60_000, -4),
    })
    expect(beats[0]).toEqual({ progress: { fraction: 0.25 }, details: '{"page":1}', moved: true })
    expect(lines).toContainEqual({
      level: 'warn',
      message: 'careful',
      fields: expect.objectContaining({
        task: 'talking',
        big: '1',
        error: expect.objectContaining({ message: 'odd' }),
      }),
    })
  })
})

describe('stopping it', () => {
  const reason = { code: 'timed_out', message: 'over', kind: 'execution', deadlineAt: 5 } as const

  test('a handler that follows its signal ends by itself, with the first reason', async () => {
    const { attempt, beats } = start(tasks.following)
    await until('the handler', () => beats.length > 0)
    attempt.abort(reason)
    attempt.abort({ code: 'cancelled', message: 'later' })
    expect(await attempt.ended).toMatchObject({ failure: { code: 'timed_out', message: 'over' } })
  })

  test('a handler that was told to stop before it began is not begun', async () => {
    const { attempt, beats } = start(tasks.busy)
    attempt.abort(reason)
    expect(await attempt.ended).toMatchObject({ failure: { code: 'timed_out' } })
    expect(beats).toEqual([])
  })

  test.each([tasks.ignoring, tasks.busy])(
    '$name, which ignores its signal, is killed',
    async (definition) => {
      const { attempt, beats } = start(definition)
      await until('the handler', () => beats.length > 0)
      attempt.abort(reason)
      const asked = clock.monotonic()
      expect(await attempt.kill()).toBe('killed')
      expect(clock.monotonic() - asked).toBeLessThan(1_000)
      expect(await attempt.ended).toMatchObject({
        failure: { code: 'process_died', details: { exitCode: null, signal: 'SIGKILL' } },
      })
    },
  )

  test('a handler that blocks its event loop still reports', async () => {
    const { attempt, beats } = start(tasks.busy)
    await until('three reports', () => beats.length >= 3)
    expect(beats.length).toBeLessThan(50)
    expect(beats.every(({ moved }) => moved)).toBe(true)
    await attempt.kill()
  })

  test('a process that was stopped with SIGSTOP is killed', async () => {
    const { attempt } = start(tasks.ignoring)
    const [main] = await until('the process', ours)
    expect(main).toMatchObject({ group: main!.pid, session: main!.pid })
    process.kill(main!.pid, 'SIGSTOP')
    await until('it to stop', () => stateOf(main!.pid) === 'T')
    expect(await attempt.kill()).toBe('killed')
  })

  test('everything it started goes with it, and nothing else', async () => {
    const unrelated = spawn('sleep', ['1000'], { stdio: 'ignore' })
    try {
      const { attempt } = start(tasks.tree, assignmentOf('tree', { dir }))
      const members = await Promise.all(tasks.TREE_NAMES.map((name) => processIn(dir, name)))
      const [main] = await until('the process', ours)
      await until('the one that stops itself', () => stateOf(members[4]!.pid) === 'T')
      expect(members.map(({ alive }) => alive())).toEqual(members.map(() => true))
      expect(await attempt.kill()).toBe('killed')
      expect(members.map(({ alive }) => alive())).toEqual(members.map(() => false))
      expect(stateOf(main!.pid)).toBe(null) // not even a zombie
      expect(await isUntouched(unrelated)).toBe(true)
      await attempt.ended
    } finally {
      unrelated.kill('SIGKILL')
    }
  })

  test('what was claimed together with it, and so has the same token, lives on', async () => {
    const token = 'a_together'
    const other = start(tasks.ignoring, assignmentOf('ignoring', null, { token }))
    await until('the handler', () => other.beats.length > 0)
    const { attempt } = start(tasks.double, assignmentOf('double', { n: 1 }, { token }))
    expect(await attempt.ended).toMatchObject({ type: 'completed' })
    expect(await ours()).toHaveLength(1)
    await other.attempt.kill()
  })

  test('what a completed handler leaves behind is ended before its end is told', async () => {
    const { attempt } = start(tasks.littering, assignmentOf('littering', { dir }))
    expect(await attempt.ended).toMatchObject({ type: 'completed' })
    for (const name of ['group', 'session']) expect((await processIn(dir, name)).alive()).toBe(false)
  })
})

test('fifty at once all end, and leave no handle behind', async () => {
  const before = process.getActiveResourcesInfo().length
  const inputs = Array.from({ length: 50 }, (_, n) => n)
  const ends = await Promise.all(
    inputs.map((n) => start(tasks.double, assignmentOf('double', { n }, { token: `a_${n}` })).attempt.ended),
  )
  expect(ends).toEqual(inputs.map((n) => ({ type: 'completed', output: `{"doubled":${n * 2}}` })))
  await until('the handles', () => process.getActiveResourcesInfo().length <= before)
}, 60_000)

/** The processes this test file's worker has right now, if any. */
async function ours(): Promise<ProcessEntry[] | null> {
  const entries = (await supervisor.table.scan()) ?? []
  const found = entries.filter(({ nodes, zombie }) => nodes.includes(nodeId) && !zombie)
  return found.length > 0 ? found : null
}
