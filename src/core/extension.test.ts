import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { ExtensionRules, ExtensionState } from './extension.ts'
import { DEFAULT_EXTENSION_RULES, decideExtension, isMore, NO_EXTENSIONS } from './extension.ts'
import { MAX_EXTENSION_REQUESTS } from './limits.ts'
import type { Progress } from './states.ts'

interface Asked {
  progress?: Progress
  at?: number
  requestId?: string
}

/** Asks one after the other, each with an id of its own. */
function ask(
  requests: readonly Asked[],
  rules: Partial<ExtensionRules> = {},
  from: ExtensionState = NO_EXTENSIONS,
) {
  let state = from
  const answers = requests.map(({ progress = {}, at = 0, requestId }, i) => {
    const request = { requestId: requestId ?? `r${i}`, progress }
    const decision = decideExtension(state, { ...DEFAULT_EXTENSION_RULES, ...rules }, request, at)
    state = decision.state
    return decision.answer
  })
  return { answers, state }
}

const rising = (count: number): Asked[] =>
  Array.from({ length: count }, (_, i) => ({ progress: { completed: i } }))

describe('E1: six requests with rising progress', () => {
  test('are granted 15, 7.5, 3.75, 1.875 and 1 s, then denied; only the fourth warns', () => {
    const { answers, state } = ask(rising(6))
    expect(answers).toEqual([
      { granted: true, ms: 15_000, remaining: 4, warning: false },
      { granted: true, ms: 7_500, remaining: 3, warning: false },
      { granted: true, ms: 3_750, remaining: 2, warning: false },
      { granted: true, ms: 1_875, remaining: 1, warning: true },
      { granted: true, ms: 1_000, remaining: 0, warning: false },
      { granted: false, reason: 'exhausted', remaining: 0, stopAt: 10_000 },
    ])
    expect(state.grantedMs).toBe(29_125)
  })
})

describe('E2: what counts as progress', () => {
  test.each<[string, Progress, Progress, boolean]>([
    ['equal items', { completed: 3 }, { completed: 3 }, false],
    ['fewer items', { completed: 3 }, { completed: 2 }, false],
    ['more items', { completed: 3 }, { completed: 4 }, true],
    [
      'equal items with a higher ratio',
      { completed: 3, fraction: 0.3 },
      { completed: 3, fraction: 0.4 },
      false,
    ],
    ['more items with a lower ratio', { completed: 3, fraction: 0.3 }, { completed: 4, fraction: 0.2 }, true],
    ['an equal ratio', { fraction: 0.3 }, { fraction: 0.3 }, false],
    ['a higher ratio', { fraction: 0.3 }, { fraction: 0.31 }, true],
    ['a lower ratio', { fraction: 0.3 }, { fraction: 0.2 }, false],
    ['nothing at all', {}, {}, false],
  ])('%s', (_, first, second, granted) => {
    const { answers } = ask([{ progress: first }, { progress: second }])
    expect(answers[0]).toMatchObject({ granted: true })
    expect(answers[1]).toMatchObject(granted ? { granted } : { granted, reason: 'no_progress', stopAt: null })
  })

  test('the first needs none', () => {
    expect(ask([{ progress: { completed: 0 } }]).answers[0]).toMatchObject({ granted: true, ms: 15_000 })
    expect(ask([{ progress: { fraction: 0 } }]).answers[0]).toMatchObject({ granted: true, ms: 15_000 })
  })

  test('it is measured against the last grant, not against what was denied', () => {
    const { answers } = ask([
      { progress: { completed: 5 } },
      { progress: { completed: 2 } },
      { progress: { completed: 4 } },
      { progress: { completed: 6 } },
    ])
    expect(answers.map(({ granted }) => granted)).toEqual([true, false, false, true])
  })

  test('more is never true both ways', () => {
    const progress = fc.record(
      { completed: fc.nat(5), fraction: fc.double({ min: 0, max: 1, noNaN: true }) },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(progress, progress, (a, b) => {
        expect(isMore(a, b) && isMore(b, a)).toBe(false)
      }),
    )
  })
})

describe('E3: rules at their edges', () => {
  test('a maximum of 0 always denies', () => {
    const { answers, state } = ask(rising(3), { maxGrants: 0 })
    expect(answers.map(({ granted, remaining }) => ({ granted, remaining }))).toEqual(
      Array(3).fill({ granted: false, remaining: 0 }),
    )
    expect(state.grantedMs).toBe(0)
    // Where there are none, asking for one is no reason to be stopped.
    expect(answers.map((answer) => !answer.granted && answer.stopAt)).toEqual([null, null, null])
  })

  test('a maximum of 1 grants once, then denies', () => {
    const { answers } = ask(rising(3), { maxGrants: 1 })
    expect(answers.map(({ granted }) => granted)).toEqual([true, false, false])
    expect(answers[0]).toEqual({ granted: true, ms: 15_000, remaining: 0, warning: true })
  })

  test('a base below the minimum grants the minimum', () => {
    const { answers } = ask(rising(3), { baseMs: 500 })
    expect(answers).toMatchObject(Array(3).fill({ granted: true, ms: 1_000 }))
  })

  test.each([
    [0, [false, false, false, false, true]],
    [1, [false, false, false, true, false]],
    [3, [false, true, false, false, false]],
    [5, [true, false, false, false, false]],
    [99, [true, false, false, false, false]],
  ])('the warning comes once, on the grant that leaves %i or less', (warnAtRemaining, warnings) => {
    const { answers } = ask(rising(5), { warnAtRemaining })
    expect(answers.map((answer) => answer.granted && answer.warning)).toEqual(warnings)
  })
})

describe('E4: when the attempt is stopped', () => {
  const exhausted = ask(rising(5)).state

  test('ten seconds after the first request beyond the last grant, however often it asks again', () => {
    const { answers } = ask(
      [
        { at: 100, requestId: 'a' },
        { at: 9_000, requestId: 'b' },
      ],
      {},
      exhausted,
    )
    expect(answers).toMatchObject([
      { granted: false, stopAt: 10_100 },
      { granted: false, stopAt: 10_100 },
    ])
  })

  test('at the third denial in a row at once', () => {
    const { answers } = ask([{}, { at: 1 }, { at: 2 }, { at: 3 }])
    expect(answers.slice(1)).toMatchObject([
      { granted: false, reason: 'no_progress', stopAt: null },
      { granted: false, reason: 'no_progress', stopAt: null },
      { granted: false, reason: 'no_progress', stopAt: 3 },
    ])
  })

  test('a grant between denials clears the count', () => {
    const { answers, state } = ask([{}, {}, {}, { progress: { completed: 1 } }, {}, {}])
    expect(answers.map(({ granted }) => granted)).toEqual([true, false, false, true, false, false])
    expect(answers.at(-1)).toMatchObject({ stopAt: null })
    expect(state.denials).toBe(2)
  })
})

test('E5: another attempt starts with the full budget', () => {
  const used = ask(rising(6))
  expect(used.state).not.toEqual(NO_EXTENSIONS)
  expect(ask([{}]).answers[0]).toEqual({ granted: true, ms: 15_000, remaining: 4, warning: false })
})

describe('the same request again', () => {
  test('is answered the same and changes nothing, granted or denied', () => {
    const { state } = ask([
      { requestId: 'one', progress: { completed: 1 } },
      { requestId: 'two', progress: { completed: 1 } },
    ])
    for (const [requestId, granted] of [
      ['one', true],
      ['two', false],
    ] as const) {
      const request = { requestId, progress: { completed: 99 } }
      const again = decideExtension(state, DEFAULT_EXTENSION_RULES, request, 99)
      expect(again).toMatchObject({ repeated: true, answer: { granted } })
      expect(again.state).toBe(state)
    }
  })

  test('is remembered for so many requests', () => {
    const { state } = ask(rising(MAX_EXTENSION_REQUESTS + 5), { maxGrants: 100 })
    expect(state.answers).toHaveLength(MAX_EXTENSION_REQUESTS)
    expect(state.answers.at(-1)?.requestId).toBe(`r${MAX_EXTENSION_REQUESTS + 4}`)
  })
})

test('never more grants than allowed, each at least the minimum, and the total adds up', () => {
  const requests = fc.array(
    fc.record({
      requestId: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g'),
      progress: fc.record({ completed: fc.nat(4) }),
    }),
    { maxLength: 30 },
  )
  fc.assert(
    fc.property(requests, fc.nat(6), fc.integer({ min: 1, max: 60_000 }), (asked, maxGrants, baseMs) => {
      const seen = new Set<string>()
      let total = 0
      const { answers, state } = ask(asked, { maxGrants, baseMs })
      for (const [i, answer] of answers.entries()) {
        const { requestId } = asked[i] as { requestId: string }
        if (seen.has(requestId)) continue
        seen.add(requestId)
        if (answer.granted) {
          expect(answer.ms).toBeGreaterThanOrEqual(1_000)
          total += answer.ms
        }
      }
      expect(state.grants).toBeLessThanOrEqual(maxGrants)
      expect(state.grantedMs).toBe(total)
    }),
  )
})
