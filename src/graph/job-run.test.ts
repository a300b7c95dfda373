import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { JobModel, JobWorkflowModel, RunIf } from '../definitions/job-model.ts'
import type { JobCommand } from './job-run.ts'
import { JobRun } from './job-run.ts'

type Entry = [id: string, dependsOn?: string, runIf?: RunIf]

/** Each with what it depends on, separated by blanks. */
function jobOf(entries: readonly Entry[], options: Partial<JobModel> = {}): JobModel {
  const workflows = entries.map(([id, dependsOn = '', runIf = 'completed']): JobWorkflowModel => {
    return { id, kind: 'task', name: id, dependsOn: dependsOn.split(' ').filter(Boolean), runIf }
  })
  return { format: 1, timeoutMs: null, stuckAfterMs: null, failFast: false, ...options, workflows }
}

/** Tells a job what happens, and keeps what it asks for. */
class Story {
  readonly job: JobRun
  readonly asked: string[] = []

  constructor(entries: readonly Entry[], options: Partial<JobModel> = {}) {
    this.job = new JobRun(jobOf(entries, options))
    this.#keep(this.job.start())
  }

  /** What it asked for since the last look. */
  get news(): string[] {
    return this.asked.splice(0)
  }

  get statuses(): Record<string, string> {
    return Object.fromEntries([...this.job.members].map(([id, { status }]) => [id, status]))
  }

  complete(id: string): this {
    this.#keep(this.job.happen({ type: 'ended', id, end: { status: 'completed', output: null } }))
    return this
  }

  end(id: string, status: 'failed' | 'timed_out' | 'cancelled' = 'failed'): this {
    const failure = { code: 'boom', message: `${id} broke`, retryable: false }
    const timeoutKind = status === 'timed_out' ? ('total' as const) : null
    this.#keep(this.job.happen({ type: 'ended', id, end: { status, failure, timeoutKind } as never }))
    return this
  }

  cancel(id: string, dependents = true): this {
    this.#keep(this.job.happen({ type: 'cancel', id, dependents }))
    return this
  }

  #keep(commands: JobCommand[]): void {
    this.asked.push(
      ...commands.map((command) =>
        command.type === 'run' ? `run ${command.member.model.id}` : `stop ${command.id}`,
      ),
    )
  }
}

const CHAIN: Entry[] = [['a'], ['b', 'a'], ['c', 'b']]
const DIAMOND: Entry[] = [['a'], ['b', 'a'], ['c', 'a'], ['d', 'b c']]

describe('workflows of a job start', () => {
  test('one after the other in a chain', () => {
    const story = new Story(CHAIN)
    expect(story.news).toEqual(['run a'])
    expect(story.complete('a').news).toEqual(['run b'])
    expect(story.complete('b').news).toEqual(['run c'])
    expect(story.job.end).toBeNull()
    story.complete('c')
    expect(story.job.end).toEqual({ status: 'completed' })
  })

  test('once in a diamond, when all before it have ended', () => {
    const story = new Story(DIAMOND)
    expect(story.complete('a').news).toEqual(['run a', 'run b', 'run c'])
    expect(story.complete('c').news).toEqual([])
    expect(story.complete('b').news).toEqual(['run d'])
  })

  test('not after one that did not complete, with that cause', () => {
    const story = new Story([...CHAIN, ['other']])
    story.end('a', 'timed_out')
    expect(story.statuses).toEqual({ a: 'timed_out', b: 'cancelled', c: 'cancelled', other: 'running' })
    expect(story.job.members.get('b')?.failure).toEqual({
      code: 'dependency',
      message: 'workflow a, which it depends on, timed out',
      retryable: false,
      details: { workflow: 'a' },
    })
    expect(story.job.members.get('c')?.failure?.details).toEqual({ workflow: 'b' })
    expect(story.job.end).toBeNull()
    story.complete('other')
    expect(story.job.end).toMatchObject({ status: 'timed_out', timeoutKind: 'total' })
  })

  test.each<[RunIf, 'completed' | 'failed', string]>([
    ['completed', 'completed', 'running'],
    ['completed', 'failed', 'cancelled'],
    ['failed', 'completed', 'cancelled'],
    ['failed', 'failed', 'running'],
    ['always', 'completed', 'running'],
    ['always', 'failed', 'running'],
  ])('run_if %s after one that %s: %s', (runIf, first, expected) => {
    const story = new Story([['a'], ['ok'], ['b', 'a ok', runIf]])
    story.complete('ok')
    if (first === 'completed') story.complete('a')
    else story.end('a')
    expect(story.statuses.b).toBe(expected)
  })

  test('run_if waits for all before it, and counts one that was cancelled for a dependency', () => {
    const story = new Story([['a'], ['slow'], ['b', 'a'], ['tidy', 'b slow', 'failed']])
    story.end('a')
    expect(story.statuses).toMatchObject({ b: 'cancelled', tidy: 'pending' })
    expect(story.complete('slow').news).toEqual(['run a', 'run slow', 'run tidy'])
  })

  test('run_if without anything to depend on has no effect', () => {
    expect(new Story([['a', '', 'failed']]).news).toEqual(['run a'])
  })
})

describe('a job ends', () => {
  test('completed although what follows failures had nothing to do', () => {
    const story = new Story([['a'], ['repair', 'a', 'failed']])
    story.complete('a')
    expect(story.job.end).toEqual({ status: 'completed' })
    expect(story.job.members.get('repair')?.failure?.message).toBe(
      'it runs only if one that it depends on does not complete',
    )
  })

  test('as the first in time that did not complete, whatever stands first in the list', () => {
    const story = new Story([['a'], ['b'], ['c']])
    story.end('c', 'timed_out').end('a').complete('b')
    expect(story.job.end).toEqual({
      status: 'timed_out',
      timeoutKind: 'total',
      failure: {
        code: 'boom',
        message: 'workflow c timed out: c broke',
        retryable: false,
        cause: { code: 'boom', message: 'c broke', retryable: false },
      },
    })
  })

  test('as what failed: a follower that completes does not hide it', () => {
    const story = new Story([['a'], ['repair', 'a', 'failed'], ['after', 'repair']])
    story.end('a').complete('repair').complete('after')
    expect(story.job.end).toMatchObject({ status: 'failed' })
  })

  test('once: what comes later changes nothing', () => {
    const story = new Story([['a']])
    story.complete('a').end('a').cancel('a')
    expect(story.statuses).toEqual({ a: 'completed' })
    expect(story.job.end).toEqual({ status: 'completed' })
  })
})

describe('fail_fast', () => {
  test('stops what runs and skips what waits; the job is what failed first', () => {
    const story = new Story([['a'], ['b'], ['c', 'b'], ['d', 'a']], { failFast: true })
    story.news
    expect(story.end('a').news).toEqual(['stop b'])
    expect(story.statuses).toEqual({ a: 'failed', b: 'running', c: 'cancelled', d: 'cancelled' })
    expect(story.job.members.get('c')?.failure).toEqual({
      code: 'fail_fast',
      message: 'the job stops: workflow a failed',
      retryable: false,
      details: { workflow: 'a' },
    })
    expect(story.job.members.get('d')?.failure?.code).toBe('dependency')
    story.end('b', 'cancelled')
    expect(story.job.end).toMatchObject({ status: 'failed' })
  })

  test('leaves what was to run after a bad end, once what it waits for has ended', () => {
    const story = new Story([['a'], ['b'], ['repair', 'a', 'failed'], ['tidy', 'a b', 'always']], {
      failFast: true,
    })
    story.news
    expect(story.end('a').news).toEqual(['run repair', 'stop b'])
    expect(story.end('b', 'cancelled').news).toEqual(['run tidy'])
    story.end('repair').complete('tidy')
    expect(story.job.end).toMatchObject({
      status: 'failed',
      failure: { message: expect.stringMatching(/workflow a failed/) },
    })
  })

  test('is not for one that somebody cancelled', () => {
    const story = new Story([['a'], ['b']], { failFast: true })
    story.cancel('a').end('a', 'cancelled')
    expect(story.statuses).toEqual({ a: 'cancelled', b: 'running' })
  })
})

describe('cancelling a workflow', () => {
  test('ends what waits for it at once, the furthest first, each once; the others go on', () => {
    const story = new Story([...DIAMOND, ['other']])
    expect(story.job.dependentsOf('a').map(({ model }) => model.id)).toEqual(['d', 'b', 'c'])
    story.news
    expect(story.cancel('a').news).toEqual(['stop a'])
    expect(story.statuses).toMatchObject({ a: 'running', b: 'cancelled', c: 'cancelled', d: 'cancelled' })
    expect(story.job.members.get('d')?.failure).toMatchObject({
      code: 'cancelled',
      message: 'it was cancelled with workflow a, which it depends on',
      details: { workflow: 'a' },
    })
    expect(story.cancel('a').cancel('d').news).toEqual([])
    story.end('a', 'cancelled').complete('other')
    expect(story.job.end).toMatchObject({
      status: 'cancelled',
      failure: { message: 'workflow a was cancelled: a broke' },
    })
  })

  test('alone leaves those that run however it ended', () => {
    const story = new Story([['a'], ['b', 'a'], ['tidy', 'b', 'always']])
    story.news
    expect(story.cancel('b', false).news).toEqual(['run tidy'])
    expect(story.statuses).toEqual({ a: 'running', b: 'cancelled', tidy: 'running' })
    story.complete('tidy').complete('a')
    expect(story.job.end).toMatchObject({
      status: 'cancelled',
      failure: { message: expect.stringMatching(/workflow b was/) },
    })
  })

  test('again, with those that wait for it, takes them too', () => {
    const story = new Story([['a'], ['b', 'a'], ['tidy', 'b', 'always'], ['after', 'tidy']])
    story.cancel('b', false).news
    expect(story.cancel('b').news).toEqual(['stop tidy'])
    expect(story.statuses.after).toBe('cancelled')
  })

  test('that has ended changes nothing, and is not hidden by what it leaves', () => {
    const story = new Story([['a'], ['b', 'a'], ['c', 'b']])
    story.complete('a').news
    expect(story.cancel('a').news).toEqual([])
    expect(story.statuses).toEqual({ a: 'completed', b: 'running', c: 'pending' })
  })

  test('that was skipped cancels what would follow it: the job is cancelled, not completed', () => {
    const story = new Story([['a'], ['slow'], ['repair', 'a', 'failed'], ['tidy', 'repair slow', 'always']])
    story.complete('a').cancel('repair').complete('slow')
    expect(story.statuses).toMatchObject({ repair: 'cancelled', tidy: 'cancelled' })
    expect(story.job.end).toMatchObject({ status: 'cancelled' })
  })

  test('and one that failed before it: the failure was first', () => {
    const story = new Story([['a'], ['b'], ['c', 'b']])
    story.end('a').cancel('b').end('b', 'cancelled')
    expect(story.job.end).toMatchObject({ status: 'failed' })
  })
})

describe('a large job', () => {
  const id = (n: number) => `w${n}`

  test('S2: a chain of 2000 is skipped or cancelled from its head', () => {
    const chain = Array.from({ length: 2_000 }, (_, n): Entry => [id(n), n ? id(n - 1) : ''])
    const failed = new Story(chain)
    failed.end('w0')
    expect(failed.job.end).toMatchObject({ status: 'failed' })
    const cancelled = new Story(chain)
    expect(cancelled.job.dependentsOf('w0').map(({ model }) => model.id)).toEqual(
      chain
        .slice(1)
        .map(([one]) => one)
        .toReversed(),
    )
    cancelled.cancel('w0').end('w0', 'cancelled')
    expect(new Set(Object.values(cancelled.statuses))).toEqual(new Set(['cancelled']))
  })

  test('S2: a ladder of 500 diamonds has 2^500 ways down; each of its workflows is met once', () => {
    const ladder: Entry[] = [['top0']]
    for (let n = 0; n < 500; n++) {
      ladder.push([`left${n}`, `top${n}`], [`right${n}`, `top${n}`], [`top${n + 1}`, `left${n} right${n}`])
    }
    const story = new Story(ladder)
    expect(story.job.dependentsOf('top0')).toHaveLength(1_500)
    story.cancel('top0').end('top0', 'cancelled')
    expect(story.job.end).toMatchObject({ status: 'cancelled' })
  })
})

/** Any job: of each workflow, which of those before it it depends on. */
const anyJob = fc
  .array(
    fc.record({
      depends: fc.array(fc.nat(9), { maxLength: 3 }),
      runIf: fc.constantFrom<RunIf>('completed', 'failed', 'always'),
    }),
    { minLength: 1, maxLength: 8 },
  )
  .map((list) =>
    list.map(({ depends, runIf }, n): Entry => {
      const before = [...new Set(depends.filter((other) => other < n))]
      return [`w${n}`, before.map((other) => `w${other}`).join(' '), runIf]
    }),
  )

const anyHappening = fc.record({
  which: fc.nat(9),
  what: fc.constantFrom('complete', 'fail', 'time out', 'cancel', 'cancel alone'),
})

test('whatever happens to any job: each starts at most once, after all before it, and it ends when all have', () => {
  fc.assert(
    fc.property(
      anyJob,
      fc.array(anyHappening, { maxLength: 30 }),
      fc.boolean(),
      (entries, what, failFast) => {
        const story = new Story(entries, { failFast })
        const started: string[] = []
        const look = () => {
          for (const command of story.news) {
            const [verb, id = ''] = command.split(' ')
            if (verb !== 'run') continue
            expect(started).not.toContain(id)
            started.push(id)
            const { dependsOn = [] } = story.job.members.get(id)?.model ?? {}
            for (const other of dependsOn) expect(story.statuses[other]).not.toMatch(/pending|running/)
          }
          const open = Object.values(story.statuses).filter((status) => /pending|running/.test(status))
          expect(story.job.end === null).toBe(open.length > 0)
          if (open.length > 0) expect(open).toContain('running')
        }
        look()
        for (const { which, what: happens } of what) {
          const one = `w${which}`
          const before = story.statuses
          if (happens === 'complete') story.complete(one)
          else if (happens === 'fail') story.end(one)
          else if (happens === 'time out') story.end(one, 'timed_out')
          else story.cancel(one, happens === 'cancel')
          look()
          for (const [id, status] of Object.entries(before)) {
            if (!/pending|running/.test(status)) expect(story.statuses[id]).toBe(status)
          }
        }
        if (story.job.end?.status !== 'completed') return
        for (const { status, cancelRequested } of story.job.members.values()) {
          expect(status).toMatch(cancelRequested ? /completed/ : /completed|cancelled/)
        }
      },
    ),
    { numRuns: 1_000 },
  )
})
