// What was kept of items that were not merged, and folders of runs that ended by themselves: they go when they may.

import { expect } from 'vitest'
import type { World } from './world.ts'
import { HANG, summaryOf, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }

/** Both change the same line, one after the other; the third fails with something in its worktree. */
const CONFLICT = {
  map: {
    input: { items: [1, 2, 3].map((n) => ({ n })) },
    max_parallel: 1,
    agent_template: [
      {
        shell: 'echo "line of ${item.n}" > shared.txt; git commit -qam "Item ${item.n}"',
        when: 'item.n < 3',
      },
      { shell: 'echo draft > draft.txt; echo more > more.txt', when: 'item.n > 1' },
      { shell: 'exit 3', when: 'item.n == 3' },
    ],
  },
}

async function conflicted(world: World): Promise<string> {
  const { jobId, counts } = summaryOf(await world.run(CONFLICT))
  expect(counts).toMatchObject({ total: 3, successful: 1, failed: 2 })
  return jobId
}

const allRefs = (world: World) => [...world.refs('refs/curfew'), ...world.refs('refs/heads/curfew')]

test('E4: a branch and a ref of one item have names that git does not mix up', LIMIT, async ({ world }) => {
  const jobId = await conflicted(world)
  expect(allRefs(world)).toEqual([
    ...[`refs/curfew/${jobId}/item-1.2`, `refs/curfew/${jobId}/item-2`],
    `refs/heads/curfew/${jobId}/item-1`,
  ])
  expect(world.git('branch', '--format=%(refname:short)', '--list', 'curfew/*')).toBe(
    `curfew/${jobId}/item-1`,
  )
  expect(world.git('show', `curfew/${jobId}/item-1:shared.txt`)).toBe('line of 2')
})

test('E4: kept work is listed, and cleaned once no dead letter needs it', LIMIT, async ({ world }) => {
  const jobId = await conflicted(world)
  const refs = allRefs(world)
  const listed = await world.curfew(['worktrees', 'list', '--json'])
  const { kept } = JSON.parse(listed.stdout) as {
    kept: { ref: string; itemId: string; branch: string | null }[]
  }
  expect(kept.map(({ ref }) => ref).toSorted()).toEqual(refs.toSorted())
  expect(kept.find(({ branch }) => branch !== null)).toMatchObject({ jobId, itemId: 'item-1' })
  expect((await world.curfew(['worktrees', 'list'])).stdout).toContain(`curfew/${jobId}/item-1`)

  // Without being asked to, and while letters are open, nothing of it goes.
  await world.curfew(['worktrees', 'clean'])
  const needed = await world.curfew(['worktrees', 'clean', '--kept'])
  expect([needed.code, needed.stdout]).toEqual([0, expect.stringContaining('stays: its dead letter is open')])
  expect(allRefs(world)).toEqual(refs)

  // Discarding a letter removes what was kept for it, and nothing else.
  const discarded = await world.curfew(['dlq', 'discard', jobId, 'item-1'])
  expect(discarded.stdout).toMatch(new RegExp(`curfew/${jobId}/item-1 removed; it was [0-9a-f]{40}`))
  expect(allRefs(world)).toEqual([`refs/curfew/${jobId}/item-2`])
  await world.curfew(['dlq', 'discard', jobId, '--keep-work'])
  expect(allRefs(world)).toEqual([`refs/curfew/${jobId}/item-2`])

  expect((await world.curfew(['worktrees', 'clean', '--older-than', '1h'])).code).toBe(2)
  await world.curfew(['worktrees', 'clean', '--kept', '--older-than', '1h'])
  await world.curfew(['worktrees', 'clean', '--kept', 'w_another'])
  await world.curfew(['worktrees', 'clean', '--kept', '--dry-run'])
  expect(allRefs(world)).toEqual([`refs/curfew/${jobId}/item-2`])
  const cleaned = await world.curfew(['worktrees', 'clean', '--kept'])
  expect(cleaned.stdout).toMatch(/item-2 removed; it was [0-9a-f]{40}/)
  expect(allRefs(world)).toEqual([])
  expect(world.runFolders()).toEqual([])
})

test(
  'E4: a branch that somebody has checked out stays, and so does what is nobody’s',
  LIMIT,
  async ({ world }) => {
    const jobId = await conflicted(world)
    world.git('branch', 'curfew/mine')
    world.git('checkout', '--quiet', `curfew/${jobId}/item-1`)
    const { code, stdout } = await world.curfew(['dlq', 'discard', jobId])
    expect([code, stdout]).toEqual([0, expect.stringContaining(`curfew/${jobId}/item-1 stays`)])
    expect(allRefs(world)).toEqual([`refs/heads/curfew/mine`, `refs/heads/curfew/${jobId}/item-1`])
  },
)

/** Interrupted while its only item works. */
async function interrupted(world: World, name: string): Promise<string> {
  const known = world.runFolders()
  const pids = world.lines('pids').length
  const map = {
    input: { items: [{ n: 1 }] },
    timeout_config: { cleanup_grace_period_secs: 1 },
    agent_template: [{ shell: `echo draft > draft.txt; ${HANG}` }],
  }
  const running = world.launch({ map }, { name })
  await world.untilMarked('pids', pids + 2)
  running.kill('SIGINT')
  expect(await running.exited).toBe(130)
  return world.runFolders().find((id) => !known.includes(id))!
}

test('I5: the folder of a run that was cancelled while nobody ran it goes', LIMIT, async ({ world }) => {
  const left = await interrupted(world, 'left')
  const cancelled = await interrupted(world, 'cancelled')
  expect((await world.curfew(['cancel', cancelled])).code).toBe(0)
  // By the next run, which leaves alone what can be resumed.
  await world.run({ map: { input: { items: [] }, agent_template: [{ shell: 'true' }] } })
  expect(world.runFolders()).toEqual([left])
  const again = await interrupted(world, 'again')
  await world.curfew(['cancel', again])
  const dry = await world.curfew(['worktrees', 'clean', '--dry-run', '--json'])
  expect(JSON.parse(dry.stdout)).toMatchObject({ runs: [{ jobId: again }] })
  const cleaned = await world.curfew(['worktrees', 'clean'])
  expect(cleaned.stdout).toContain(`${again} removed`)
  expect(world.runFolders()).toEqual([left])
  expect(world.refs('refs/curfew')).toHaveLength(3)
})
