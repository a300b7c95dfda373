import { describe, expect, vi } from 'vitest'
import type { StoredItem } from './world.ts'
import { HANG, summaryOf, TOLERANCE_MS, worldTest as test } from './world.ts'

// Each test starts processes that wait for limits, and the machine may be busy.
vi.setConfig({ testTimeout: 90_000, maxConcurrency: 4 })

const SLOW_AND_FAST = { items: [{ name: 'slow' }, { name: 'fast' }] }
/** One item hangs and has 1 s; the other is done at once. */
const HANG_ONE = [
  { shell: HANG, timeout: 1, when: 'item.name == "slow"' },
  { shell: 'echo "done" >> "$MARKS/ran"' },
]
const REDUCE = [{ shell: 'echo reduced >> "$MARKS/ran"' }]

const config = (timeout_action: string, more: object = {}) => ({
  timeout_config: { timeout_action, cleanup_grace_period_secs: 1, ...more },
})

/** How long it took from the limit until the command was gone, and how. */
function resolvedOf(item: StoredItem | undefined): { resolution: string; tookMs: number } {
  const found = item?.events.filter(({ type }) => type === 'timeout_resolved') ?? []
  expect(found).toHaveLength(1)
  return found[0] as unknown as { resolution: string; tookMs: number }
}

describe('what becomes of an item that timed out', () => {
  test.concurrent('D1: by default it is in the dead letters, and the others go on', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: SLOW_AND_FAST, timeout_config: { cleanup_grace_period_secs: 1 } },
        agent_template: HANG_ONE,
      },
      reduce: REDUCE,
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(1)
    expect(summary).toMatchObject({ status: 'completed', deadLetters: 1 })
    expect(world.lines('ran')).toEqual(['done', 'reduced'])
    const letters = await world.letters(summary.jobId)
    expect(letters).toMatchObject([
      {
        ...{ itemId: 'item-0', name: 'slow', state: 'open', errorType: 'timeout', attempts: 1 },
        body: {
          item: { name: 'slow' },
          timeout: { kind: 'command', commandIndex: 0, limitMs: 1_000, source: 'step' },
          output: { stdout: 'partial\n' },
        },
      },
    ])
  })

  test.concurrent('D2: with skip it is counted apart, and in no dead letter', async ({ world }) => {
    const ran = await world.run({
      map: { input: SLOW_AND_FAST, ...config('skip'), agent_template: HANG_ONE },
      reduce: [{ shell: 'echo ${map.skipped} ${map.failed} >> "$MARKS/ran"' }],
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(0)
    expect(summary).toMatchObject({
      ...{ status: 'completed', deadLetters: 0 },
      counts: { total: 2, skipped: 1, successful: 1, timedOut: 0, failed: 0 },
    })
    expect(summary.timeouts).toHaveLength(1)
    expect(world.lines('ran')).toEqual(['done', '1 0'])
    expect(await world.letters(summary.jobId)).toEqual([])
    expect(world.alive()).toEqual([])
  })

  test.concurrent('D3: with fail the others are stopped, and nothing is reduced', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: { items: [1, 2, 3, 4, 5].map((n) => ({ name: `n${n}`, n })) }, ...config('fail') },
        agent_template: [
          { shell: HANG, timeout: 2, when: 'item.n == 1' },
          { shell: HANG, when: 'item.n != 1' },
        ],
      },
      reduce: REDUCE,
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(1)
    expect(summary).toMatchObject({
      status: 'failed',
      counts: { total: 5, timedOut: 1, cancelled: 4 },
      failure: { message: expect.stringContaining('item item-0 (n1) timed out and timeout_action is fail') },
    })
    expect(world.lines('pids')).toHaveLength(10)
    expect(world.alive()).toEqual([])
    expect(world.mark('late')).toBeNull()
    expect(world.mark('ran')).toBeNull()
    await world.nothingLeft()
  })

  test.concurrent('D7: with retry each attempt has more time, up to a cap', async ({ world }) => {
    const escalation = { multiplier: 2, max_secs: 3, max_attempts: 3 }
    const ran = await world.run({
      map: {
        ...{ input: SLOW_AND_FAST, agent_timeout_secs: 1, ...config('retry', { escalation }) },
        agent_template: [
          { shell: HANG, when: 'item.name == "slow" || attempt < 3' },
          { shell: 'sleep 1.2; echo "${attempt}" >> "$MARKS/ran"' },
        ],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts).toMatchObject({ total: 2, successful: 1, timedOut: 1 })
    expect(world.lines('ran')).toEqual(['3'])
    const items = await world.items(summary.jobId)
    expect(items['item-0']).toMatchObject({ status: 'timed_out', attempts: 3 })
    expect(items['item-1']).toMatchObject({ status: 'successful', attempts: 3 })
    for (const item of Object.values(items)) {
      const limits = item.events.filter(({ type }) => type === 'agent_started').map(({ limitMs }) => limitMs)
      expect(limits).toEqual([1_000, 2_000, 3_000])
    }
    for (const { elapsedMs, limitMs } of summary.timeouts) {
      expect(elapsedMs).toBeGreaterThanOrEqual(limitMs)
      expect(elapsedMs).toBeLessThanOrEqual(limitMs + TOLERANCE_MS)
    }
    const [letter, ...others] = await world.letters(summary.jobId)
    expect(others).toEqual([])
    expect(letter).toMatchObject({ itemId: 'item-0', attempts: 3 })
    expect(letter?.body.history).toHaveLength(3)
    expect(world.alive()).toEqual([])
  })

  test.concurrent('D7: with retry alone it is tried once more, with the same limit', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: SLOW_AND_FAST, agent_timeout_secs: 1, ...config('retry') },
        agent_template: [{ shell: HANG, when: 'item.name == "slow" && attempt == 1' }],
      },
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(0)
    expect(summary).toMatchObject({ deadLetters: 0, counts: { total: 2, successful: 2 } })
    expect((await world.items(summary.jobId))['item-0']).toMatchObject({ attempts: 2, status: 'successful' })
  })
})

describe('how it is stopped', () => {
  const ONE = { items: [{ name: 'one' }] }
  /** Says that it was asked, and takes its time. */
  const polite = (secs: number) =>
    `echo $$ >> "$MARKS/pids"; trap 'echo asked >> "$MARKS/ran"; sleep ${secs}; echo clean >> "$MARKS/ran"; exit 0' TERM; echo ready; sleep 600 & wait`

  test.concurrent('D4: graceful_terminate asks, and lets it put things in order', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: ONE, agent_timeout_secs: 1 },
        ...config('graceful_terminate', { cleanup_grace_period_secs: 30 }),
        agent_template: [{ shell: polite(1) }],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.timeouts).toMatchObject([{ resolution: 'GracefulTermination' }])
    expect(summary.deadLetters).toBe(1)
    expect(world.lines('ran')).toEqual(['asked', 'clean'])
    expect(world.alive()).toEqual([])
  })

  test.concurrent('D5: one that ignores it is killed when the grace is over', async ({ world }) => {
    const stubborn = 'trap "" TERM; echo $$ >> "$MARKS/pids"; while :; do sleep 1; done'
    const ran = await world.run({
      map: {
        ...{ input: ONE, agent_timeout_secs: 1, ...config('dlq', { cleanup_grace_period_secs: 2 }) },
        agent_template: [{ shell: stubborn }],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.timeouts).toMatchObject([{ resolution: 'ForceTermination' }])
    const { resolution, tookMs } = resolvedOf((await world.items(summary.jobId))['item-0'])
    expect(resolution).toBe('ForceTermination')
    expect(tookMs).toBeGreaterThanOrEqual(2_000)
    expect(tookMs).toBeLessThanOrEqual(2_000 + TOLERANCE_MS)
    expect(world.lines('pids')).toHaveLength(1)
    expect(world.alive()).toEqual([])
    await world.nothingLeft()
  })

  test.concurrent('D6: within the grace nothing is killed', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: ONE, agent_timeout_secs: 1, ...config('dlq', { cleanup_grace_period_secs: 12 }) },
        agent_template: [{ shell: polite(4) }],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.timeouts).toMatchObject([{ resolution: 'GracefulTermination' }])
    expect(world.lines('ran')).toEqual(['asked', 'clean'])
    expect(resolvedOf((await world.items(summary.jobId))['item-0']).tookMs).toBeGreaterThanOrEqual(4_000)
  })
})

describe('handlers and the error policy', () => {
  test.concurrent('D8: a handler of a timeout runs within what is left, and does not undo it', async ({
    world,
  }) => {
    const on_failure = { shell: 'echo "${item.name} ${failure.kind} ${failure.output}" >> "$MARKS/handled"' }
    const ran = await world.run({
      map: {
        ...{ input: SLOW_AND_FAST, agent_timeout_secs: 20, ...config('dlq') },
        agent_template: [
          { shell: HANG, timeout: 1, when: 'item.name == "slow"', on_failure },
          { shell: 'echo "${item.name}" >> "$MARKS/ran"' },
        ],
      },
    })
    expect(summaryOf(ran).counts).toMatchObject({ timedOut: 1, successful: 1 })
    expect(world.mark('handled')).toBe('slow timed_out partial\n\n')
    expect(world.lines('ran')).toEqual(['fast'])
    const spent = await world.run({
      map: {
        ...{ input: SLOW_AND_FAST, agent_timeout_secs: 1, ...config('dlq') },
        agent_template: [
          { shell: HANG, when: 'item.name == "slow"', on_failure: { shell: 'echo spent >> "$MARKS/spent"' } },
        ],
      },
    })
    expect(summaryOf(spent).timeouts).toMatchObject([{ kind: 'agent', limitMs: 1_000 }])
    expect(world.mark('spent')).toBeNull()
  })

  test.concurrent('D8: a timeout counts for max_failures', async ({ world }) => {
    const ran = await world.run({
      error_policy: { max_failures: 1 },
      map: {
        ...{ input: { items: [1, 2, 3].map((n) => ({ n })) }, max_parallel: 1, ...config('dlq') },
        agent_template: [{ shell: HANG, timeout: 1 }],
      },
      reduce: REDUCE,
    })
    const summary = summaryOf(ran)
    expect(ran.code).toBe(1)
    expect(summary).toMatchObject({
      ...{ status: 'failed', counts: { total: 3, timedOut: 1, cancelled: 2 } },
      failure: {
        message: expect.stringMatching(/1 of 3 items failed, which error_policy does not tolerate.+item-0/),
      },
    })
    expect(world.lines('pids')).toHaveLength(2)
    expect(world.mark('ran')).toBeNull()
  })

  /** Five items one after the other, of which the first so many fail. */
  const failing = (count: number, error_policy: object) => ({
    error_policy,
    map: {
      ...{ input: { items: [1, 2, 3, 4, 5].map((n) => ({ n })) }, max_parallel: 1 },
      agent_template: [{ shell: `echo "\${item.n}" >> "$MARKS/items"; test "\${item.n}" -gt ${count}` }],
    },
    reduce: REDUCE,
  })

  test.concurrent('max_failures: one less is tolerated; with stop the rest never starts', async ({
    world,
  }) => {
    const stopped = await world.run(failing(2, { max_failures: 2 }))
    expect(stopped.code).toBe(1)
    expect(summaryOf(stopped)).toMatchObject({
      ...{ status: 'failed', counts: { total: 5, failed: 2, cancelled: 3, successful: 0 }, deadLetters: 2 },
    })
    expect(world.lines('items')).toEqual(['1', '2'])
    expect(world.mark('ran')).toBeNull()
    const tolerated = await world.run(failing(1, { max_failures: 2 }))
    expect(tolerated.code).toBe(1)
    expect(summaryOf(tolerated)).toMatchObject({
      ...{ status: 'completed', counts: { total: 5, failed: 1, successful: 4 }, deadLetters: 1 },
    })
    expect(world.lines('ran')).toEqual(['reduced'])
  })

  test.concurrent('max_failures with continue: all items run, and then it has failed', async ({ world }) => {
    const ran = await world.run(failing(2, { max_failures: 2, on_failure: 'continue' }))
    expect(ran.code).toBe(1)
    expect(summaryOf(ran)).toMatchObject({
      status: 'failed',
      counts: { total: 5, failed: 2, successful: 3, cancelled: 0 },
      failure: {
        code: 'too_many_failures',
        message: '2 of 5 items failed, which error_policy does not tolerate',
      },
    })
    expect(world.lines('items')).toEqual(['1', '2', '3', '4', '5'])
    expect(world.mark('ran')).toBeNull()
  })

  test.concurrent('failure_rate: more than its share is not tolerated', async ({ world }) => {
    const tolerated = await world.run(failing(2, { failure_rate: 0.4 }))
    expect(summaryOf(tolerated)).toMatchObject({ status: 'completed', counts: { failed: 2, successful: 3 } })
    expect(world.lines('ran')).toEqual(['reduced'])
    const stopped = await world.run(failing(5, { failure_rate: 0.4 }))
    expect(summaryOf(stopped)).toMatchObject({ status: 'failed', counts: { failed: 3, cancelled: 2 } })
    const continued = await world.run(failing(3, { failure_rate: 0.4, on_failure: 'continue' }))
    expect(summaryOf(continued)).toMatchObject({
      ...{ status: 'failed', counts: { failed: 3, successful: 2 }, failure: { code: 'too_many_failures' } },
    })
    expect(world.lines('ran')).toEqual(['reduced'])
  })

  test.concurrent('on_failure: stop alone stops at the first; without a policy all run', async ({
    world,
  }) => {
    const stopped = await world.run(failing(3, { on_failure: 'stop' }))
    expect(summaryOf(stopped).counts).toMatchObject({ failed: 1, cancelled: 4 })
    const none = await world.run(failing(5, {}))
    expect(summaryOf(none)).toMatchObject({ status: 'completed', counts: { failed: 5, cancelled: 0 } })
    expect(none.code).toBe(1)
    expect(world.lines('ran')).toEqual(['reduced'])
  })
})
