// What a run that goes on owes to those before it: commits that were being merged, items that were to be tried again.

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { expect } from 'vitest'
import type { CliProcess } from '../../src/cli/fixtures/cli-process.ts'
import { until } from '../wait.ts'
import type { World } from './world.ts'
import { HANG, TOLERANCE_MS, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }
const TOLD = 'echo "${item} ${attempt}" >> "$MARKS/ran"'

async function killed(running: CliProcess): Promise<void> {
  running.kill('SIGKILL')
  expect(await running.exited).toBe('SIGKILL')
}

/** A git that stays in a merge, before or after it has made it, where there is such a mark. */
function hangInMerges(world: World): void {
  const real = execFileSync('sh', ['-c', 'command -v git'], { encoding: 'utf8' }).trim()
  const hang = (when: string) =>
    `if test -e "$MARKS/${when}"; then echo ${when} >> "$MARKS/merging"; exec sleep 600; fi`
  world.program(
    'git',
    `#!/bin/sh
case " $* " in *" merge --ff-only "*) ;; *) exec ${real} "$@" ;; esac
${hang('before')}
${real} "$@" || exit
${hang('after')}
`,
  )
}

async function clean(world: World): Promise<{ itemId: string; kept: string | null }[]> {
  const { code, stdout, stderr } = await world.curfew(['worktrees', 'clean', '--json'])
  expect(code, stderr).toBe(0)
  return JSON.parse(stdout).cleaned
}

test(
  'I3: killed before and after a merge, and with its folders cleaned away: merged once, and not run again',
  LIMIT,
  async ({ world }) => {
    const commit = 'echo it > "made-${item}.txt"; git add -A; git commit -qm "Item ${item}"'
    hangInMerges(world)
    world.setMark('before')
    const first = world.launch({
      map: { input: { items: [0, 1] }, agent_template: [{ shell: TOLD }, { shell: commit }] },
      reduce: [{ shell: 'echo "${map.successful}" > "$MARKS/reduced"' }],
    })
    await world.untilMarked('merging')
    const [jobId] = world.runFolders()
    // The other one waits for its turn, its commands through as well.
    const results = path.join(world.runs, jobId!, 'results.jsonl')
    await until('both are being merged', 40_000, () =>
      /item-0(.|\n)*item-1|item-1(.|\n)*item-0/.test(read(results)),
    )
    await killed(first)
    expect(world.git('log', '--format=%s')).toBe('First')

    rmSync(path.join(world.marks, 'before'))
    world.setMark('after')
    const second = world.start(['resume', jobId!])
    await world.untilMarked('merging', 2)
    // Somebody works on it: nothing is cleaned away.
    expect(await clean(world)).toEqual([])
    const folders = ['item-0', 'item-1'].map((id) => path.join(world.runs, jobId!, 'worktrees', id))
    expect(folders.map((folder) => existsSync(folder))).toEqual([true, true])
    await killed(second)
    const merged = world.git('log', '--format=%s').split('\n')
    expect(merged).toHaveLength(2)

    // Nobody does: what is not merged is kept.
    const cleaned = await clean(world)
    expect(cleaned.map(({ itemId }) => itemId).toSorted()).toEqual(['item-0', 'item-1'])
    const open = merged[0] === 'Item 0' ? 'item-1' : 'item-0'
    expect(world.refs('refs/curfew')).toEqual([`refs/curfew/${jobId}/${open}`])

    rmSync(path.join(world.marks, 'after'))
    const { code, json, stderr } = await world.curfew(['resume', jobId!, '--json'])
    expect([code, json?.counts], stderr).toMatchObject([0, { total: 2, successful: 2 }])
    expect(world.mark('reduced')).toBe('2\n')
    expect(world.lines('ran').toSorted()).toEqual(['0 1', '1 1'])
    const subjects = world.git('log', '--format=%s').split('\n')
    expect(subjects.filter((subject) => subject.startsWith('Item')).toSorted()).toEqual(['Item 0', 'Item 1'])
    expect(world.git('ls-tree', '--name-only', 'HEAD').split('\n')).toEqual([
      ...['made-0.txt', 'made-1.txt', 'shared.txt'],
    ])
    expect([world.git('status', '--porcelain'), world.worktrees()]).toEqual(['', []])
  },
)

/** Hangs until there is such a mark. */
function unless(mark: string): string {
  return `test -e "$MARKS/${mark}" || { echo now >> "$MARKS/${mark}-missed"; ${HANG}; }`
}

test(
  'I2, I4: a retry of timeouts is owed by the next session, within the limit that is set there, also per_command',
  LIMIT,
  async ({ world }) => {
    const first = world.launch({
      map: {
        input: { items: ['late', 'slow'] },
        timeout_config: { timeout_policy: 'per_command', cleanup_grace_period_secs: 1 },
        agent_template: [
          { shell: TOLD },
          { shell: unless('mended'), timeout: 1, when: 'item == "late"' },
          { shell: unless('late'), timeout: null, when: 'item == "late"' },
          { shell: unless('slow'), timeout: null, when: 'item == "slow"' },
        ],
      },
      reduce: [{ shell: 'echo "${map.successful} ${map.timed_out}" > "$MARKS/reduced"' }],
    })
    await world.untilMarked('slow-missed')
    await until('one has timed out', 40_000, () => first.stderr.includes('item-0 timed out'))
    await killed(first)
    const [jobId] = world.runFolders()

    world.setMark('slow')
    world.setMark('mended')
    const second = world.start(['resume', jobId!, '--retry-timeouts'])
    await world.untilMarked('late-missed')
    await killed(second)

    // It hangs once more: no limit of a command ends it.
    const { code, json, stderr } = await world.curfew(['resume', jobId!, '--agent-timeout', '2s', '--json'])
    expect([code, json?.counts], stderr).toMatchObject([1, { total: 2, successful: 1, timedOut: 1 }])
    expect(world.lines('late-missed')).toHaveLength(2)
    expect(world.lines('ran').toSorted()).toEqual([...['late 1', 'late 2', 'late 2', 'slow 1', 'slow 2']])
    expect(world.mark('reduced')).toBe('1 1\n')
    expect(json!.timeouts).toMatchObject([
      { itemId: 'item-0', kind: 'command', limitMs: 1_000, source: 'step' },
      { itemId: 'item-0', kind: 'agent', limitMs: 2_000, source: 'resume --agent-timeout' },
    ])
    const { elapsedMs } = json!.timeouts[1]!
    expect(elapsedMs).toBeGreaterThanOrEqual(2_000)
    expect(elapsedMs).toBeLessThanOrEqual(2_000 + TOLERANCE_MS)
    expect(json!.notes).toEqual([])
    expect(await world.letters(jobId!)).toMatchObject([{ itemId: 'item-0', state: 'open', attempts: 2 }])
    expect(world.alive()).toEqual([])
  },
)

function read(file: string): string {
  return existsSync(file) ? readFileSync(file, 'utf8') : ''
}
