// Runs beside each other, and in places that are not as they should be.

import { closeSync, existsSync, openSync, rmSync, writeSync } from 'node:fs'
import path from 'node:path'
import { expect, test as plainTest } from 'vitest'
import { until } from '../wait.ts'
import { HANG, TOLERANCE_MS, worldTest as test, World } from './world.ts'

const LIMIT = { timeout: 120_000 }
const DISK_BYTES = 8 * 1024 * 1024

/** Its items write their names, commit, and wait for a file of the test's. */
function pipeline(name: string, items: number, map: object = {}): object {
  return {
    map: {
      input: { items: Array.from({ length: items }, (_, n) => ({ n, name: `${name}-${n}` })) },
      timeout_config: { cleanup_grace_period_secs: 1 },
      ...map,
      agent_template: [
        { shell: `echo "\${item.name} \${attempt}" >> "$MARKS/${name}"` },
        { shell: `echo $$ >> "$MARKS/pids"; until test -e "$MARKS/go-${name}"; do sleep 0.05; done` },
        {
          shell: 'echo made > "${item.name}.txt"; git add -A; git commit -qm "${item.name}"',
          commit_required: true,
        },
      ],
    },
    reduce: [{ shell: `echo "\${map.successful}" > "$MARKS/reduced-${name}"` }],
  }
}

test(
  'two runs in one folder: the second is a client of the first, and both end well',
  LIMIT,
  async ({ world }) => {
    const first = world.launch(pipeline('first', 3), { name: 'first' })
    await world.untilMarked('first', 3)
    const second = world.launch(pipeline('second', 3), { name: 'second' })
    await world.untilMarked('second', 3)
    // The first one ends, and lets go of the store, while the second is at work.
    world.setMark('go-first')
    const one = await world.ended(first)
    expect([one.code, one.json?.counts]).toMatchObject([0, { total: 3, successful: 3 }])
    await until('the second has noticed', 40_000, () =>
      second.stderr.includes(`process ${first.pid} is gone`),
    )
    world.setMark('go-second')
    const two = await world.ended(second)
    expect([two.code, two.json?.counts]).toMatchObject([0, { total: 3, successful: 3 }])
    expect([world.mark('reduced-first'), world.mark('reduced-second')]).toEqual(['3\n', '3\n'])
    const made = world.git('ls-tree', '--name-only', 'HEAD').split('\n')
    expect(made.filter((file) => /^(first|second)-\d\.txt$/.test(file))).toHaveLength(6)
    // Each item was worked on by its own run, and went on when the store changed hands.
    expect(world.lines('first').toSorted()).toEqual(['first-0 1', 'first-1 1', 'first-2 1'])
    expect(world.lines('second').toSorted()).toEqual(['second-0 1', 'second-1 1', 'second-2 1'])
    expect(world.worktrees()).toEqual([])
    expect(world.runFolders()).toEqual([])
    await world.nothingLeft()
  },
)

test(
  'when the first of two runs is killed with -9 the second goes on, and so can the first, with a new limit',
  LIMIT,
  async ({ world }) => {
    const limited = { ...pipeline('first', 2), timeout: '1h' }
    const first = world.launch(limited, { name: 'first' })
    await world.untilMarked('first', 2)
    const [killed] = world.runFolders()
    const second = world.launch(pipeline('second', 2), { name: 'second' })
    await world.untilMarked('second', 2)
    first.kill('SIGKILL')
    expect(await first.exited).toBe('SIGKILL')
    await until('the second has noticed', 40_000, () =>
      second.stderr.includes(`process ${first.pid} is gone`),
    )
    // Nobody ran what was the other's.
    expect(world.lines('first')).toHaveLength(2)
    const from = Date.now()
    const resumed = world.start(['resume', killed!, '--timeout', '2h', '--json'])
    await world.untilMarked('first', 4)
    const deadlineAt = await deadlineOf(world, killed!)
    expect(deadlineAt).toBeGreaterThanOrEqual(from + 7_200_000)
    expect(deadlineAt).toBeLessThanOrEqual(Date.now() + 7_200_000)
    world.setMark('go-second')
    const two = await world.ended(second)
    expect([two.code, two.json?.counts]).toMatchObject([0, { total: 2, successful: 2 }])
    expect(world.mark('reduced-second')).toBe('2\n')
    expect(world.lines('second').toSorted()).toEqual(['second-0 1', 'second-1 1'])
    await until('the first has noticed', 40_000, () =>
      resumed.stderr.includes(`process ${second.pid} is gone`),
    )
    // The limit is as it was set, whoever has the store.
    expect(await deadlineOf(world, killed!)).toBe(deadlineAt)
    world.setMark('go-first')
    const one = await world.ended(resumed)
    expect([one.code, one.json?.counts]).toMatchObject([0, { total: 2, successful: 2 }])
    expect(world.lines('first').toSorted()).toEqual(['first-0 1', 'first-0 2', 'first-1 1', 'first-1 2'])
    expect(world.worktrees()).toEqual([])
    await world.nothingLeft()
  },
)

async function deadlineOf(world: World, jobId: string): Promise<number> {
  const { code, stdout, stderr } = await world.curfew(['status', jobId, '--json'])
  expect(code, stderr).toBe(0)
  return JSON.parse(stdout).deadlineAt
}

plainTest('without git it says so, and items work in folders that are empty', LIMIT, async () => {
  const world = new World({ git: false })
  try {
    const definition = {
      map: {
        input: { items: [{ n: 1 }, { n: 2 }] },
        ...{ agent_timeout_secs: 1, timeout_config: { cleanup_grace_period_secs: 1 } },
        agent_template: [
          { shell: 'pwd >> "$MARKS/folders"; ls -A >> "$MARKS/found"; echo mine > mine.txt' },
          { shell: HANG, when: 'item.n == 2' },
        ],
      },
    }
    const { code, json, stderr } = await world.run(definition)
    expect([code, json?.counts]).toMatchObject([1, { successful: 1, timedOut: 1 }])
    expect(stderr).toMatch(/no git repository|not in a git repository|without git/i)
    expect(new Set(world.lines('folders')).size).toBe(2)
    expect(world.mark('found')).toBe('')
    for (const folder of world.lines('folders')) expect(folder.startsWith(world.runs)).toBe(true)
    expect(world.alive()).toEqual([])
  } finally {
    await world.end()
  }
})

test(
  'K1: on a full disk new work is refused, limits hold, and the run ends when there is space',
  LIMIT,
  async ({ world }) => {
    if (process.getuid?.() !== 0) {
      console.warn('NOT TESTED: a full disk. Mounting a small file system needs root, and this is not root.')
      return
    }
    const disk = world.scratch.mountMemory(DISK_BYTES)
    const args = ['--store', path.join(disk, 'store.db')]
    const map = {
      input: { items: [{ n: 1 }, { n: 2 }] },
      ...{ max_parallel: 1, agent_timeout_secs: 3, timeout_config: { cleanup_grace_period_secs: 1 } },
      agent_template: [
        { shell: `echo now >> "$MARKS/started"; ${HANG}`, when: 'item.n == 1' },
        { shell: 'echo 2 >> "$MARKS/ran"', when: 'item.n == 2' },
      ],
    }
    const running = world.launch({ map }, { args })
    await world.untilMarked('started')
    // A run listens a moment after it began.
    await until('it listens', 20_000, () => existsSync(path.join(disk, 'store.db.sock')))
    const filler = fill(disk)

    const other = { map: { ...map, agent_template: [{ shell: 'true' }] } }
    const refused = await world.ended(world.launch(other, { args, name: 'other' }))
    expect(refused.code).toBe(1)
    expect(refused.stderr).toMatch(/store_full|is full/)
    // The limit needs no store.
    await until(
      'the command was ended',
      40_000,
      () => world.lines('pids').length === 2 && world.alive().length === 0,
    )
    expect(running.alive).toBe(true)

    rmSync(filler)
    const { code, json } = await world.ended(running)
    expect([code, json?.status, json?.counts]).toMatchObject([1, 'completed', { successful: 1, timedOut: 1 }])
    expect(json!.timeouts[0]!.elapsedMs).toBeGreaterThanOrEqual(3_000)
    expect(json!.timeouts[0]!.elapsedMs).toBeLessThanOrEqual(3_000 + TOLERANCE_MS)
    expect(world.lines('ran')).toEqual(['2'])
    const letters = await world.curfew(['dlq', 'list', json!.jobId, '--json', ...args])
    expect(JSON.parse(letters.stdout).letters).toMatchObject([{ itemId: 'item-0', errorType: 'timeout' }])
  },
)

test('a state folder in which nothing can be made is refused at once', LIMIT, async ({ world }) => {
  world.write('file', 'not a folder')
  for (const folder of ['/proc/curfew', '/proc/self/x/y', path.join(world.top, 'file')]) {
    const ran = await world.run(pipeline('never', 1), [], { CURFEW_STATE_DIR: folder })
    expect([ran.code, ran.json]).toEqual([1, null])
    expect(ran.stderr).toMatch(/the folder of the run, .* cannot be made \((ENOENT|ENOTDIR)\)/)
    expect(ran.stderr).toContain('set CURFEW_STATE_DIR to a folder that can be written')
  }
  expect(world.mark('never')).toBeNull()
})

/** Everything that is left, to the last page; the store may take some meanwhile. */
function fill(folder: string): string {
  const file = path.join(folder, 'filler')
  const opened = openSync(file, 'w')
  try {
    for (;;) writeSync(opened, Buffer.alloc(4_096))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  } finally {
    closeSync(opened)
  }
  return file
}
