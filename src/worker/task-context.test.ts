import { describe, expect, test } from 'vitest'
import { MAX_DETAILS_BYTES } from '../core/limits.ts'
import type { Progress } from '../core/states.ts'
import { Stopped } from '../core/task-errors.ts'
import type { Assignment } from '../wire/worker-port.ts'
import { assignmentOf, clock, SILENT } from './fixtures/process-probe.ts'
import { toProgress } from './progress.ts'
import { createTaskContext } from './task-context.ts'

function open(over: Partial<Assignment> = {}) {
  const beats: unknown[] = []
  const requests: { requestId: string; progress: Progress }[] = []
  const callbacks = {
    beat: (beat: unknown) => void beats.push(beat),
    extend: async (request: (typeof requests)[number]) => {
      requests.push(request)
      return { granted: false, reason: 'exhausted', remaining: 0, stopAt: null } as const
    },
  }
  const assignment = assignmentOf('any', null, { token: 'a_1', ...over })
  const control = createTaskContext(assignment, { clock, logger: SILENT }, callbacks)
  return { control, ctx: control.context, beats, requests }
}

describe('the context of a handler', () => {
  test('aborts once, with a typed reason, whether the signal was asked for before or after', () => {
    for (const early of [true, false]) {
      const { control, ctx } = open()
      const aborts: unknown[] = []
      if (early) ctx.signal.addEventListener('abort', () => aborts.push(ctx.signal.reason))
      control.abort({ code: 'timed_out', message: 'over', kind: 'total', deadlineAt: 7 })
      control.abort({ code: 'cancelled', message: 'later' })
      expect(ctx.signal.aborted).toBe(true)
      expect(ctx.signal.reason).toBeInstanceOf(Stopped)
      expect(ctx.signal.reason).toMatchObject({ code: 'timed_out', kind: 'total', deadlineAt: 7 })
      expect(aborts).toHaveLength(early ? 1 : 0)
    }
  })

  test('counts down from its arrival, by the limit that ends first', () => {
    expect(open().ctx.remaining()).toBe(Infinity)
    const { control, ctx } = open({ attemptMs: 60_000, totalMs: 30_000, deadlineAt: 99 })
    expect(ctx.deadline).toBe(99)
    expect(ctx.remaining()).toBeGreaterThan(25_000)
    expect(ctx.remaining()).toBeLessThan(30_000)
    control.setDeadline(100, 0)
    expect([ctx.deadline, ctx.remaining()]).toEqual([100, 0])
    control.setDeadline(null, null)
    expect([ctx.deadline, ctx.remaining()]).toEqual([null, Infinity])
  })

  test('can be taken apart, and says when the work moved', () => {
    const { ctx, beats } = open()
    const { progress, heartbeat } = ctx
    progress(0)
    progress(0.5, { page: 1 })
    progress(0.5)
    heartbeat('alive')
    progress({ completed: 3, total: 10 })
    expect(beats).toEqual([
      { progress: { fraction: 0 }, details: null, moved: false },
      { progress: { fraction: 0.5 }, details: '{"page":1}', moved: true },
      { progress: { fraction: 0.5 }, details: null, moved: false },
      { progress: null, details: '"alive"', moved: false },
      { progress: { completed: 3, total: 10 }, details: null, moved: true },
    ])
  })

  test('asks for time with the last progress and an id of its own, unless given others', async () => {
    const { ctx, requests } = open()
    ctx.progress(0.5)
    await ctx.extend()
    await ctx.extend({ progress: { completed: 2 }, requestId: 'mine' })
    await ctx.extend()
    expect(requests).toEqual([
      { requestId: 'a_1:1', progress: { fraction: 0.5 } },
      { requestId: 'mine', progress: { completed: 2 } },
      { requestId: 'a_1:2', progress: { fraction: 0.5 } },
    ])
  })

  test('refuses details that cannot be kept', () => {
    const { ctx, beats } = open()
    expect(() => ctx.heartbeat({ at: Number.NaN })).toThrow(expect.objectContaining({ code: 'invalid_json' }))
    const big = 'x'.repeat(MAX_DETAILS_BYTES)
    expect(() => ctx.progress(0.5, big)).toThrow(expect.objectContaining({ code: 'too_big' }))
    expect(beats).toEqual([])
  })
})

describe('progress', () => {
  test.each([
    [0.5, { fraction: 0.5 }],
    [{ fraction: 1 }, { fraction: 1 }],
    [
      { completed: 3, total: 10 },
      { completed: 3, total: 10 },
    ],
    [
      { completed: 11, total: 10 },
      { completed: 11, total: 10 },
    ],
    [{ completed: 0, other: 1 } as Progress, { completed: 0 }],
  ])('%j is %j', (value, progress) => {
    expect(toProgress(value)).toEqual(progress)
  })

  test.each([
    Number.NaN,
    -0.1,
    1.1,
    Infinity,
    {},
    { total: 5 },
    { completed: -1 },
    { completed: Number.NaN },
    { completed: 1, total: Infinity },
    '50%' as unknown as number,
    null as unknown as number,
  ])('%j is refused', (value) => {
    expect(() => toProgress(value)).toThrow(expect.objectContaining({ code: 'invalid_progress' }))
  })
})
