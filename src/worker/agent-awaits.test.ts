import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { inRanges } from '../core/agent-journal.ts'
import { Awaits } from './agent-awaits.ts'
import { Group } from './agent-group.ts'
import type { Waitable } from './agent-step.ts'
import { Step } from './agent-step.ts'

/** Steps as a run keeps them. */
class Steps {
  readonly pending = new Map<number, Step>()
  readonly awaits = new Awaits(this.pending)
  #next = 0

  add(kind: 'task' | 'sleep'): Step {
    const no = this.#next++
    const step = new Step(this, no, { kind })
    this.pending.set(no, step)
    return step
  }

  tasks(count: number): Step[] {
    return Array.from({ length: count }, () => this.add('task'))
  }

  end(step: Step): void {
    this.pending.delete(step.no)
    step.settle({ value: null })
  }

  awaited(waitable: Waitable): void {
    if (!waitable.end) this.awaits.add(waitable)
  }

  settled(waitable: Waitable): void {
    this.awaits.settled(waitable)
  }

  waitFor(...waitables: Waitable[]): void {
    for (const waitable of waitables) void waitable.then()
  }

  get waits() {
    return this.awaits.waits([])
  }
}

const group = (steps: Steps, kind: 'all' | 'race', members: Step[]) =>
  new Group(steps, kind, members, { timeoutMs: null, cancelRest: null, cancel: () => undefined })

describe('the waits of a run', () => {
  test('for thousands of steps stay one range, in whatever order they end', () => {
    const steps = new Steps()
    const tasks = steps.tasks(3_000)
    steps.waitFor(...tasks)
    const left = tasks.toSorted((a, b) => ((a.no * 7_919) % 3_001) - ((b.no * 7_919) % 3_001))
    for (let step = left.pop(); step; step = left.pop()) {
      expect(steps.waits).toEqual([{ mode: 'each', steps: [[0, 2_999]], left: left.length + 1 }])
      steps.end(step)
    }
    expect(steps.waits).toEqual([])
  })

  test('are one range in whatever order they are begun', () => {
    const steps = new Steps()
    const tasks = steps.tasks(100)
    steps.waitFor(...tasks.toSorted((a, b) => ((a.no * 37) % 101) - ((b.no * 37) % 101)))
    expect(steps.waits).toEqual([{ mode: 'each', steps: [[0, 99]], left: 100 }])
  })

  test('begin anew when nothing is left of them', () => {
    const steps = new Steps()
    const [first, second] = steps.tasks(2) as [Step, Step]
    steps.waitFor(first)
    steps.end(first)
    steps.waitFor(second)
    expect(steps.waits).toEqual([{ mode: 'each', steps: [[1, 1]], left: 1 }])
  })

  test('for several together leave out what is open beside them, and go over what has ended', () => {
    const steps = new Steps()
    const [first, ended, middle, beside, last] = steps.tasks(5) as [Step, Step, Step, Step, Step]
    steps.waitFor(group(steps, 'all', [last, middle, first]))
    steps.end(ended)
    const ranges = [
      [first.no, middle.no],
      [last.no, last.no],
    ]
    expect(steps.waits).toEqual([{ mode: 'all', steps: ranges, left: 3 }])
    steps.waitFor(beside)
    expect(steps.waits).toContainEqual({ mode: 'each', steps: [[beside.no, beside.no]], left: 1 })
  })

  test('of a group that is over are over', () => {
    const steps = new Steps()
    const [one, other] = steps.tasks(2) as [Step, Step]
    steps.waitFor(group(steps, 'race', [one, other]))
    expect(steps.waits).toEqual([{ mode: 'each', steps: [[0, 1]], left: 2 }])
    steps.end(other)
    expect(steps.waits).toEqual([])
  })

  const move = fc.oneof(
    fc.record({
      type: fc.constant('add' as const),
      kind: fc.constantFrom('task' as const, 'sleep' as const),
    }),
    fc.record({ type: fc.constantFrom('wait' as const, 'end' as const), at: fc.nat(30) }),
  )

  test('cover every open step that is waited for, and no open work that is not', () => {
    fc.assert(
      fc.property(fc.array(move, { maxLength: 80 }), (moves) => {
        const steps = new Steps()
        const waited = new Set<Step>()
        for (const made of moves) {
          const open = [...steps.pending.values()]
          const step = made.type === 'add' ? steps.add(made.kind) : open[made.at % (open.length || 1)]
          if (!step || made.type === 'add') continue
          if (made.type === 'end') steps.end(step)
          else {
            steps.waitFor(step)
            waited.add(step)
          }
          const covered = (no: number) => steps.waits.some((wait) => inRanges(wait.steps, no))
          for (const one of steps.pending.values()) {
            if (one.isWork) expect([one.no, covered(one.no)]).toEqual([one.no, waited.has(one)])
          }
        }
        const isOpen = [...waited].filter((one) => !one.end)
        expect(steps.awaits.size).toBe(isOpen.length)
        expect(steps.waits.length > 0).toBe(isOpen.some((one) => one.isWork))
      }),
    )
  })
})
