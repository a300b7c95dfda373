// An item that timed out is worked on once more by one at a time: by `dlq retry`, or by the run that goes on.

import { expect } from 'vitest'
import { until } from '../wait.ts'
import type { World } from './world.ts'
import { HANG, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }

/** Items 0 and 1 time out, item 2 is at work when the run is killed. */
async function killedRun(world: World): Promise<string> {
  const running = world.launch({
    map: {
      input: { items: [0, 1, 2] },
      ...{ max_parallel: 1, agent_timeout_secs: 1, timeout_config: { cleanup_grace_period_secs: 1 } },
      agent_template: [
        { shell: 'echo "${item} ${attempt}" >> "$MARKS/ran"' },
        { shell: `test -e "$MARKS/mended-\${item}" || { ${HANG}; }`, when: 'item < 2' },
        {
          shell: `test -e "$MARKS/go" || { echo now >> "$MARKS/hanging"; ${HANG}; }`,
          ...{ when: 'item == 2', timeout: '60s' },
        },
      ],
    },
  })
  await world.untilMarked('hanging')
  running.kill('SIGKILL')
  await running.exited
  await until('its commands are ended', 20_000, () => world.alive().length === 0)
  world.setMark('go')
  return world.runFolders()[0]!
}

const ranOf = (world: World, item: number) => world.lines('ran').filter((line) => line.startsWith(`${item} `))

test(
  'H2, I2: what `dlq retry` has done, or was discarded, is not done again by --retry-timeouts',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    for (const item of [0, 1]) world.setMark(`mended-${item}`)
    expect((await world.curfew(['dlq', 'retry', jobId, 'item-0', '--json'])).code).toBe(0)
    expect((await world.curfew(['dlq', 'discard', jobId, 'item-1', '--json'])).code).toBe(0)
    const { json, stderr } = await world.curfew(['resume', jobId, '--retry-timeouts', '--json'])
    expect([ranOf(world, 0).length, ranOf(world, 1).length], stderr).toEqual([2, 1])
    expect(json).toMatchObject({ status: 'completed', counts: { successful: 1, timedOut: 2 } })
    expect(json?.notes).toMatchObject([expect.stringMatching(/not tried again here.*item-0, item-1/)])
    expect((await world.letters(jobId)).map(({ state }) => state)).toEqual(['resolved', 'discarded'])
  },
)

test(
  'H3, I2: what a retry is at, or has tried in vain, is left to it; the run takes the others',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    expect((await world.curfew(['dlq', 'retry', jobId, 'item-0', '--json'])).code).toBe(1)
    const retry = world.start(['dlq', 'retry', jobId, 'item-1', '--timeout', '60s', '--json'])
    await until('item 1 is at work again', 30_000, () => ranOf(world, 1).length === 2)
    const { json } = await world.curfew(['resume', jobId, '--retry-timeouts', '--json'])
    expect([ranOf(world, 0).length, ranOf(world, 1).length]).toEqual([2, 2])
    expect(json?.notes).toMatchObject([expect.stringMatching(/not tried again here.*item-0, item-1/)])
    retry.kill('SIGINT')
    expect(await retry.exited).toBe(130)
    const [letter] = await world.letters(jobId)
    expect(letter?.body.history).toHaveLength(2)
  },
)

test(
  'H3, I2: what the run works on once more is refused to `dlq retry`, also while it is interrupted',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    const again = world.start(['resume', jobId, '--retry-timeouts', '--agent-timeout', '60s', '--json'])
    await until('item 0 is at work again', 30_000, () => ranOf(world, 0).length === 2)
    const during = await world.curfew(['dlq', 'retry', jobId, 'item-1'])
    expect([during.code, during.stderr]).toMatchObject([
      1,
      expect.stringMatching(/item-1 of .* is being retried by/),
    ])
    again.kill('SIGINT')
    expect(await again.exited).toBe(130)
    const between = await world.curfew(['dlq', 'retry', jobId])
    expect([between.code, between.stderr]).toMatchObject([
      1,
      expect.stringMatching(new RegExp(`curfew resume ${jobId}`)),
    ])
    for (const item of [0, 1]) world.setMark(`mended-${item}`)
    const { code, json, stderr } = await world.curfew(['resume', jobId, '--json'])
    expect([code, json?.counts.successful, json?.notes], stderr).toEqual([0, 3, []])
    expect((await world.letters(jobId)).map(({ state }) => state)).toEqual(['resolved', 'resolved'])
  },
)

test(
  'H2, I2: a retry that goes on with --retry-timeouts closes the letters of what is done',
  LIMIT,
  async ({ world }) => {
    const jobId = await killedRun(world)
    const retry = world.start(['dlq', 'retry', jobId, '--max-parallel', '1', '--json'])
    await until('item 1 is at work again', 30_000, () => ranOf(world, 1).length === 2)
    retry.kill('SIGINT')
    expect(await retry.exited).toBe(130)
    const retryId = world.runFolders().find((one) => one !== jobId)!
    for (const item of [0, 1]) world.setMark(`mended-${item}`)
    const { code, json, stderr } = await world.curfew(['resume', retryId, '--retry-timeouts', '--json'])
    expect([code, json?.counts.successful], stderr).toEqual([0, 2])
    expect((await world.letters(jobId)).map(({ state }) => state)).toEqual(['resolved', 'resolved'])
  },
)
