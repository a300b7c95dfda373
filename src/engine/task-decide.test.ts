// Random histories of one task, with the rules that none of them may break.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isEnded } from '../core/states.ts'
import { decodePolicy } from '../definitions/policy-text.ts'
import type { TaskOptions } from '../definitions/task.ts'
import type { TaskRow } from '../store/task-row.ts'
import { claimedRow, isClaimable, newRow } from './fixtures/task-rows.ts'
import { decideTask } from './task-decide.ts'
import type { TaskDraft } from './task-draft.ts'
import type { PlainEventBody, TaskEventBody } from './task-event.ts'
import type { TaskInput } from './task-input.ts'

type Step =
  | { do: 'claim' }
  | { do: 'park' }
  /** `stale`: with the token of an attempt before. */
  | { do: 'input'; input: TaskInput; stale: boolean }

interface Timed {
  afterMs: number
  chance: number
  step: Step
}

const nullable = <T>(values: fc.Arbitrary<T>) => fc.option(values, { nil: null, freq: 2 })
const limit = nullable(fc.integer({ min: 1, max: 20_000 }))
const policies: fc.Arbitrary<TaskOptions & { delayMs: number }> = fc.record({
  delayMs: fc.constantFrom(0, 0, 3_000),
  timeout: limit,
  attemptTimeout: limit,
  queueTimeout: limit,
  heartbeatTimeout: limit,
  stuckAfter: limit,
  onTimeout: fc.constantFrom('retry', 'fail'),
  retries: fc.nat(3),
  grace: fc.constantFrom(0, 1_000),
  warnAt: fc.constantFrom(0.01, 0.5, 0.8, 1),
  atMostOnce: fc.boolean(),
  backoff: fc.record({ initial: fc.constantFrom(0, 500), jitter: fc.constantFrom(0, 1) }),
})

const token = 'filled in'
const late = fc.constantFrom(
  { output: '"late"' },
  { failure: { code: 'x', message: 'late', retryable: true } },
)
const receipt = fc.constantFrom('exited', 'aborted', 'terminated', 'killed', 'abandoned' as const)
const inputs: fc.Arbitrary<TaskInput> = fc.oneof(
  { weight: 6, arbitrary: fc.constant<TaskInput>({ type: 'due' }) },
  { weight: 1, arbitrary: fc.constant<TaskInput>({ type: 'completed', token, output: '1' }) },
  { weight: 1, arbitrary: fc.constant<TaskInput>({ type: 'overdue', token }) },
  {
    weight: 2,
    arbitrary: nullable(fc.nat(5_000)).map((limitMs): TaskInput => {
      return {
        type: 'note',
        token,
        events: [{ type: 'cleanup_completed', item: 'item-1' }],
        letters: [],
        limitMs,
      }
    }),
  },
  {
    weight: 2,
    arbitrary: fc.boolean().map((retryable): TaskInput => {
      return { type: 'failed', token, failure: { code: 'failed', message: 'no', retryable } }
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('beat' as const),
      token: fc.constant(token),
      progress: nullable(fc.record({ completed: fc.nat(5) })),
      details: nullable(fc.constant('"d"')),
      moved: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('extend' as const),
      token: fc.constant(token),
      requestId: fc.string({ maxLength: 2 }),
      progress: fc.record({ completed: fc.nat(9) }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant('stopped' as const),
      token: fc.constant(token),
      reason: fc
        .constantFrom('timed_out' as const, 'closing' as const)
        .map((code) => ({ code, message: '' })),
      receipt,
      late: fc.constant(null),
    }),
  },
  { weight: 1, arbitrary: late.map((result): TaskInput => ({ type: 'returned', token, late: result })) },
  { weight: 1, arbitrary: fc.constant<TaskInput>({ type: 'cancel' }) },
  { weight: 1, arbitrary: fc.nat(5_000).map((byMs): TaskInput => ({ type: 'extend_by', byMs })) },
  { weight: 1, arbitrary: fc.constant<TaskInput>({ type: 'resume' }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom('n_1', 'n_2').map((nodeId): TaskInput => {
      return { type: 'lost', nodeId, receipt: 'unreachable' }
    }),
  },
)

const steps: fc.Arbitrary<Timed[]> = fc.array(
  fc.record({
    afterMs: fc.oneof(fc.constant(0), fc.nat(50), fc.nat(5_000), fc.nat(30_000)),
    chance: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
    step: fc.oneof(
      { weight: 5, arbitrary: fc.constant<Step>({ do: 'claim' }) },
      { weight: 1, arbitrary: fc.constant<Step>({ do: 'park' }) },
      {
        weight: 18,
        arbitrary: fc.record({
          do: fc.constant('input' as const),
          input: inputs,
          stale: fc.nat(4).map((one) => one === 0),
        }),
      },
    ),
  }),
  { minLength: 1, maxLength: 60 },
)

const OUTCOMES = ['task_timed_out', 'task_failed', 'task_cancelled']

class History {
  row: TaskRow
  now = 0
  outcomes = 0
  events: { seq: number; body: TaskEventBody | PlainEventBody }[] = []
  #claims = 0

  constructor(options: TaskOptions & { delayMs: number }) {
    this.row = newRow(options)
    this.#check(this.row)
  }

  play({ afterMs, chance, step }: Timed): void {
    this.now += afterMs
    if (step.do === 'claim') this.#claim()
    else if (step.do === 'park') this.#park()
    else this.decide(this.#addressed(step), chance)
  }

  #addressed({ input, stale }: Extract<Step, { do: 'input' }>): TaskInput {
    return 'token' in input
      ? { ...input, token: stale ? `a_${this.#claims - 1}` : `a_${this.#claims}` }
      : input
  }

  #claim(): void {
    const before = this.row
    if (!isClaimable(before, this.now)) return
    // Nothing starts beside another attempt.
    expect(before).toMatchObject({ status: 'pending', live: 0, stopping: 0, parked: null, settledAt: null })
    expect(before.startAt).toBeLessThanOrEqual(this.now)
    expect(before.retryAt ?? 0).toBeLessThanOrEqual(this.now)
    this.#claims++
    this.row = claimedRow(before, { now: this.now, nodeId: 'n_1', token: `a_${this.#claims}` })
    const { attempt, nodeId, startedSeq } = this.row
    this.events.push({ seq: startedSeq as number, body: { type: 'attempt_started', attempt, nodeId } })
    this.#check(before)
  }

  #park(): void {
    if (this.row.status === 'pending') this.row = { ...this.row, parked: 'unreadable', ready: 0, dueAt: null }
  }

  decide(input: TaskInput, chance: number): void {
    const before = this.row
    const frozen = structuredClone(before)
    const { draft } = decideTask(before, input, this.now, chance)
    expect(before).toEqual(frozen) // pure
    this.row = draft.row
    if (input.type === 'completed' || input.type === 'returned') {
      if (this.row.status === 'completed' && before.status !== 'completed') {
        this.outcomes++
        this.events.push({
          seq: this.row.endedSeq as number,
          body: { type: 'task_completed', attempts: this.row.attempt },
        })
      }
    }
    this.#account(draft, before)
    this.#check(before)
    if (input.type === 'due') this.#checkFired()
  }

  #account(draft: TaskDraft, before: TaskRow): void {
    for (const { seq, body } of draft.events) {
      this.events.push({ seq, body })
      if (OUTCOMES.includes(body.type)) this.outcomes++
      if ('lateMs' in body) {
        // Never early, and how late is told.
        expect(body.deadlineAt).toBeLessThanOrEqual(this.now)
        // A task that could not be retried ends with the limit that its attempt has told about before.
        const told = this.events.some(
          ({ body: earlier }) =>
            earlier.type === 'attempt_timed_out' && earlier.attempt === before.attempt && earlier !== body,
        )
        expect(body.lateMs).toBe(told && body.lateMs === 0 ? 0 : this.now - body.deadlineAt)
      }
      if (body.type === 'limit_warning') expect(body.deadlineAt).toBeGreaterThan(this.now)
      if (body.type === 'retry_scheduled') {
        expect(body.retryAt).toBeGreaterThanOrEqual(this.now)
        expect(body.retryAt).toBeLessThan(draft.row.deadlineAt ?? Infinity)
      }
    }
    const told = draft.effects.filter(({ type }) => type === 'settled').length
    expect(told).toBe(before.settledAt === null && draft.row.settledAt !== null ? 1 : 0)
    for (const { status, attempt, nodeId } of draft.attempts) {
      expect(status).not.toBe('completed')
      expect({ attempt, nodeId }).toEqual({ attempt: before.attempt, nodeId: before.nodeId })
    }
  }

  #check(before: TaskRow): void {
    const { row } = this
    const policy = decodePolicy(row.policy)
    // One outcome, and it stays.
    expect(this.outcomes).toBe(isEnded(row.status) ? 1 : 0)
    if (isEnded(before.status)) {
      const kept = ['status', 'endedAt', 'endedSeq', 'output', 'failure', 'timeoutKind', 'attempt'] as const
      for (const field of kept) expect([field, row[field]]).toEqual([field, before[field]])
    }
    if (before.settledAt !== null) expect(row.settledAt).toBe(before.settledAt)
    // Settled exactly when it ended and no attempt is waited for.
    const waitedFor = row.stopping === 1 && row.stopBoundAt !== null
    expect(row.settledAt !== null).toBe(isEnded(row.status) && !waitedFor)
    expect(row.endedAt !== null).toBe(isEnded(row.status))
    // What may be handed out has no attempt; what runs has one.
    if (row.ready === 1) expect(row).toMatchObject({ status: 'pending', live: 0, stopping: 0, parked: null })
    if (row.status === 'running') expect(row).toMatchObject({ live: 1, stopping: 0, ready: 0, retryAt: null })
    if (row.stopping === 1) expect(row.live).toBe(1)
    if (row.stopBoundAt !== null) expect(row.stopping).toBe(1)
    if (row.status === 'timed_out') expect(row.timeoutKind).not.toBeNull()
    // Retries.
    expect(row.failures).toBeLessThanOrEqual(policy.retries)
    expect(row.losses).toBeLessThanOrEqual(4)
    if (
      policy.atMostOnce &&
      !this.events.some(({ body }) => body.type === 'attempt_timed_out' || body.type === 'attempt_failed')
    )
      expect(row.attempt).toBeLessThanOrEqual(1)
    // Numbers without gaps, from 2: the first is its scheduling.
    expect(this.events.map(({ seq }) => seq)).toEqual(this.events.map((_, i) => i + 2))
    expect(row.seq).toBe(this.events.length + 1)
    this.#checkDue()
  }

  #checkDue(): void {
    const { row } = this
    // Whatever decides next looks at a parked row as a whole.
    if (row.parked !== null && row.dueAt === null) return
    const next = earliest(row)
    if (next < Infinity) expect(row.dueAt ?? Infinity).toBeLessThanOrEqual(next)
    if (isEnded(row.status)) expect(row.dueAt === null).toBe(row.stopBoundAt === null)
    // Something will move it: time, a worker, or the end of its process.
    else expect(row.dueAt !== null || row.ready === 1 || row.live === 1 || row.parked !== null).toBe(true)
  }

  /** Nothing that was due is left. */
  #checkFired(): void {
    expect(earliest(this.row)).toBeGreaterThan(this.now)
    expect(this.row.dueAt ?? Infinity).toBeGreaterThan(this.now)
    if (earliest(this.row) === Infinity) expect(this.row.dueAt).toBeNull()
  }
}

/** What can fire next, read off the columns. */
function earliest(row: TaskRow): number {
  const open = !isEnded(row.status)
  const running = row.status === 'running'
  const waits = row.status === 'pending' && row.ready === 0 && row.stopping === 0 && row.parked === null
  const moments = [
    open ? row.deadlineAt : null,
    open && row.attempt === 0 ? row.queueDeadlineAt : null,
    running ? row.attemptDeadlineAt : null,
    running ? row.heartbeatDeadlineAt : null,
    running ? row.stuckDeadlineAt : null,
    running ? row.exhaustedDeadlineAt : null,
    row.stopBoundAt,
    waits ? (row.retryAt ?? row.startAt) : null,
  ]
  return Math.min(...moments.map((moment) => moment ?? Infinity))
}

test('no history of a task breaks its rules', () => {
  fc.assert(
    fc.property(policies, steps, (policy, history) => {
      const task = new History(policy)
      for (const step of history) task.play(step)
    }),
    { numRuns: 1_500 },
  )
})

test('from wherever it got to, a task with a limit ends and settles by time alone', () => {
  fc.assert(
    fc.property(policies, steps, (policy, history) => {
      const task = new History({ ...policy, timeout: policy.timeout ?? 60_000 })
      for (const step of history) task.play(step)
      for (let i = 0; i < 5 && task.row.settledAt === null; i++) {
        task.now += 1_000_000
        task.decide({ type: 'due' }, 0.5)
      }
      expect(task.row.settledAt).not.toBeNull()
    }),
    { numRuns: 500 },
  )
})

test('however often it warns, each limit does so once per attempt', () => {
  fc.assert(
    fc.property(policies, steps, (policy, history) => {
      const task = new History(policy)
      for (const step of history) task.play(step)
      const seen = new Set<string>()
      let attempt = 0
      for (const { body } of task.events) {
        if (body.type === 'attempt_started') attempt = body.attempt
        if (body.type !== 'limit_warning') continue
        const key = body.kind === 'total' || body.kind === 'queue' ? body.kind : `${body.kind} ${attempt}`
        expect(seen.has(key)).toBe(false)
        seen.add(key)
      }
    }),
    { numRuns: 300 },
  )
})
