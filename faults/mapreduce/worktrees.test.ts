// What items leave in the repository: nothing but what they were asked to, however they end.

import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { expect } from 'vitest'
import type { World } from './world.ts'
import { HANG, worldTest as test } from './world.ts'

const LIMIT = { timeout: 90_000 }

/** Writes a file with the item in it, and commits it. */
const COMMIT = 'echo "from ${item.n}" > "made-${item.n}.txt"; git add -A; git commit -qm "Item ${item.n}"'

function pipeline(items: object[], steps: object[], map: object = {}, rest: object = {}): object {
  const timeout_config = { cleanup_grace_period_secs: 1 }
  return { map: { input: { items }, timeout_config, ...map, agent_template: steps }, ...rest }
}

/** What is left of a run, in the repository and beside it. With dead letters, what it was started with is needed. */
function lookOf(world: World) {
  return {
    worktrees: world.worktrees(),
    branches: world.git('branch', '--list'),
    status: world.git('status', '--porcelain'),
    stash: world.git('stash', 'list'),
    folders: world.runFolders().flatMap((run) => readdirSync(path.join(world.runs, run))),
  }
}

const CLEAN = { worktrees: [], branches: '* main', status: '', stash: '', folders: ['run.json'] }

test(
  'E2: after a timeout neither worktree nor branch is left, and the main checkout is as it was',
  LIMIT,
  async ({ world }) => {
    const head = world.git('rev-parse', 'HEAD')
    const steps = [
      { shell: 'pwd >> "$MARKS/folders"; echo draft > draft.txt; echo changed > shared.txt' },
      { shell: HANG },
    ]
    const { code, json } = await world.run(pipeline([{ n: 1 }], steps, { agent_timeout_secs: 1 }))
    expect([code, json?.counts.timedOut]).toEqual([1, 1])
    const [folder] = world.lines('folders')
    expect(path.relative(world.top, folder!)).toMatch(/^\.\./)
    expect(existsSync(folder!)).toBe(false)
    expect(lookOf(world)).toEqual(CLEAN)
    expect(world.git('rev-parse', 'HEAD')).toBe(head)
    expect(world.git('show', 'HEAD:shared.txt')).toBe('one\ntwo\nthree')
    expect(readdirSync(path.join(world.top, '.git')).filter((name) => name === 'worktrees')).toEqual([])
  },
)

test(
  'E4, E5: what a timed-out item committed and changed is kept under its ref, and not merged',
  LIMIT,
  async ({ world }) => {
    const hang = { shell: `echo draft > draft.txt; echo problem >&2; ${HANG}`, when: 'item.n == 1' }
    const file = pipeline([{ n: 1 }, { n: 2 }], [{ shell: COMMIT }, hang], { agent_timeout_secs: 2 })
    const { json } = await world.run(file)
    expect(json?.counts).toMatchObject({ total: 2, successful: 1, timedOut: 1 })
    // The other one is merged, this one is not.
    expect(world.git('ls-tree', '--name-only', 'HEAD').split('\n')).toEqual(['made-2.txt', 'shared.txt'])
    const ref = `refs/curfew/${json!.jobId}/item-0`
    expect(world.refs('refs/curfew')).toEqual([ref])
    expect(world.git('ls-tree', '--name-only', ref).split('\n')).toEqual([
      'draft.txt',
      'made-1.txt',
      'shared.txt',
    ])
    expect(world.git('log', '--format=%s', ref).split('\n')).toContain('Item 1')
    const [letter] = await world.letters(json!.jobId)
    expect(letter).toMatchObject({
      itemId: 'item-0',
      errorType: 'timeout',
      body: {
        partial: {
          steps: [
            { command: 0, status: 'completed', exitCode: 0 },
            { command: 1, status: 'timed_out' },
          ],
          kept: { ref, commit: world.git('rev-parse', ref), changedFiles: ['draft.txt', 'made-1.txt'] },
        },
        output: { stdout: 'partial\n', stderr: 'problem\n' },
      },
    })
    expect(lookOf(world)).toEqual(CLEAN)
  },
)

test(
  'E3: a folder that cannot be removed is told and listed, and the run goes on',
  LIMIT,
  async ({ world }) => {
    // Root too is refused where a file system is mounted.
    const mount = 'mkdir held && mount -t tmpfs -o size=4k curfew-faults held && pwd > "$MARKS/held"'
    if (process.getuid?.() !== 0) {
      console.warn('NOT TESTED: a folder that cannot be removed. Mounting needs root, and this is not root.')
      return
    }
    const file = pipeline(
      [{ n: 1 }, { n: 2 }],
      [
        { shell: mount, when: 'item.n == 1' },
        { shell: HANG, when: 'item.n == 1' },
      ],
      { agent_timeout_secs: 2 },
      { reduce: [{ shell: 'echo ran > "$MARKS/reduced"' }] },
    )
    try {
      const { code, json, stderr } = await world.run(file)
      expect([code, json?.status, json?.counts]).toMatchObject([
        1,
        'completed',
        { successful: 1, timedOut: 1 },
      ])
      expect(world.mark('reduced')).toBe('ran\n')
      expect(json?.notes).toHaveLength(1)
      expect(json?.notes[0]).toMatch(/work folder is left: item-0/)
      expect(stderr).toContain('work folder is left')
      const { 'item-0': item } = await world.items(json!.jobId)
      const failed = item?.events.find(({ type }) => type === 'cleanup_failed')
      expect(failed).toMatchObject({ item: 'item-0' })
      const listed = await world.curfew(['worktrees', 'list', '--orphaned', '--json'])
      expect(JSON.parse(listed.stdout)).toMatchObject({
        worktrees: [{ jobId: json!.jobId, itemId: 'item-0' }],
      })
    } finally {
      for (const folder of mounted(world)) execFileSync('umount', [folder])
    }
    const cleaned = await world.curfew(['worktrees', 'clean'])
    expect(cleaned.code).toBe(0)
    const now = await world.curfew(['worktrees', 'list', '--json'])
    expect(JSON.parse(now.stdout)).toMatchObject({ worktrees: [] })
    expect(world.worktrees()).toEqual([])
  },
)

test(
  'E3: a clean-up that fails after Ctrl-C is an event of the run, as it is told',
  LIMIT,
  async ({ world }) => {
    if (process.getuid?.() !== 0) {
      console.warn('NOT TESTED: a folder that cannot be removed. Mounting needs root, and this is not root.')
      return
    }
    const mount = 'mkdir held && mount -t tmpfs -o size=4k curfew-faults held'
    const running = world.launch(pipeline([{ n: 1 }], [{ shell: mount }, { shell: HANG }]))
    try {
      await world.untilMarked('pids', 2)
      const [jobId] = world.runFolders()
      running.kill('SIGINT')
      const { code, stderr } = await world.ended(running)
      expect([code, stderr]).toEqual([
        130,
        expect.stringContaining('The folder of item-0 could not be removed'),
      ])
      const { stdout } = await world.curfew(['events', jobId!, '--json'])
      const events = stdout.split('\n').flatMap((line) => (line === '' ? [] : JSON.parse(line)))
      const told = events.filter(({ type }) => type === 'cleanup_failed')
      expect(told).toMatchObject([{ item: 'item-0', message: expect.stringContaining('is left') }])
    } finally {
      for (const folder of mounted(world)) execFileSync('umount', [folder])
    }
  },
)

/** It was moved aside since. */
function mounted(world: World): string[] {
  return execFileSync('cat', ['/proc/self/mounts'], { encoding: 'utf8' })
    .split('\n')
    .flatMap((line) => line.split(' ')[1]?.replaceAll('\\040', ' ') ?? [])
    .filter((folder) => folder.startsWith(world.scratch.folder))
}

test(
  'two items that conflict: one is merged, the other is in the dead letters with its branch',
  LIMIT,
  async ({ world }) => {
    const write = 'echo "line of ${item.n}" > shared.txt; git commit -qam "Item ${item.n}"'
    const { code, json } = await world.run(pipeline([{ n: 1 }, { n: 2 }], [{ shell: write }]))
    expect([code, json?.counts]).toMatchObject([1, { total: 2, successful: 1, failed: 1 }])
    const [letter, ...more] = await world.letters(json!.jobId)
    expect(more).toEqual([])
    const { itemId } = letter!
    const branch = `curfew/${json!.jobId}/${itemId}`
    expect(letter).toMatchObject({ errorType: 'conflict', message: expect.stringContaining(branch) })
    expect(letter!.message).toContain('shared.txt')
    const [loser, winner] = itemId === 'item-0' ? [1, 2] : [2, 1]
    expect(world.git('show', `${branch}:shared.txt`)).toBe(`line of ${loser}`)
    expect(world.git('show', 'HEAD:shared.txt')).toBe(`line of ${winner}`)
    expect(world.refs('refs/heads')).toEqual([`refs/heads/${branch}`, 'refs/heads/main'])
    expect({ ...lookOf(world), branches: '' }).toEqual({ ...CLEAN, branches: '' })
  },
)

test(
  'changes in the main checkout that nobody committed stay, and nothing is merged over them',
  LIMIT,
  async ({ world }) => {
    world.write('shared.txt', 'mine\n')
    world.write('other.txt', 'mine too\n')
    const one = { shell: 'echo theirs > shared.txt; git commit -qam "Item"', when: 'item.n == 1' }
    const two = { shell: COMMIT, when: 'item.n == 2' }
    const { code, json } = await world.run(pipeline([{ n: 1 }, { n: 2 }], [one, two], { max_parallel: 1 }))
    expect([code, json?.counts]).toMatchObject([1, { total: 2, successful: 1, failed: 1 }])
    expect(world.git('status', '--porcelain').split('\n').toSorted()).toEqual([
      '?? other.txt',
      'M shared.txt',
    ])
    expect(world.git('diff', '--', 'shared.txt')).toContain('+mine')
    expect(world.git('show', 'HEAD:made-2.txt')).toBe('from 2')
    const [letter] = await world.letters(json!.jobId)
    expect(letter).toMatchObject({ itemId: 'item-0', errorType: 'conflict' })
    expect(world.git('show', `curfew/${json!.jobId}/item-0:shared.txt`)).toBe('theirs')
  },
)

test('commits of many items are all merged, each begun from the same commit', LIMIT, async ({ world }) => {
  const base = world.git('rev-parse', 'HEAD')
  const items = Array.from({ length: 12 }, (_, n) => ({ n }))
  const steps = [{ shell: 'git rev-parse HEAD >> "$MARKS/bases"' }, { shell: COMMIT, commit_required: true }]
  const { code, json } = await world.run(pipeline(items, steps, { max_parallel: 6 }))
  expect([code, json?.counts.successful]).toEqual([0, 12])
  expect(new Set(world.lines('bases'))).toEqual(new Set([base]))
  expect(world.git('ls-tree', '--name-only', 'HEAD').split('\n')).toHaveLength(13)
  expect(readdirSync(world.top).filter((name) => name.startsWith('made-'))).toHaveLength(12)
  expect(world.refs('refs/curfew')).toEqual([])
  expect(lookOf(world)).toEqual({ ...CLEAN, folders: [] })
})
