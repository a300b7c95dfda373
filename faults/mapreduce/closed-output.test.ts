// Nobody can be told any more: a log on a full disk, a terminal that was closed. The work is not lost for it.

import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { expect } from 'vitest'
import type { World } from './world.ts'
import { worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }
const MAIN = path.join(import.meta.dirname, '../../src/cli/main.ts')

function runWith(world: World, redirection: string, pipeline: object) {
  const script = `exec "$0" "$1" run "$2" ${redirection}`
  return spawnSync('sh', ['-c', script, process.execPath, MAIN, world.pipeline(pipeline)], {
    ...{ cwd: world.top, env: world.env, encoding: 'utf8', timeout: 60_000 },
  })
}

const told = {
  setup: [{ shell: 'echo ready; echo steady >&2' }],
  map: { input: { items: [1] }, agent_template: [{ shell: 'true' }] },
  reduce: [{ shell: 'echo done; echo done > "$MARKS/reduced"' }],
}

test('K1: a run whose progress cannot be written goes on to its end', LIMIT, ({ world }) => {
  const { status, stdout } = runWith(world, '2> /dev/full', told)
  expect([status, stdout]).toEqual([0, 'ready\ndone\n'])
  expect(world.mark('reduced')).toBe('done\n')
  expect(world.runFolders()).toEqual([])
})

test('K1: also one whose results cannot be written, and then it has failed', LIMIT, ({ world }) => {
  const { status, stderr } = runWith(world, '> /dev/full', told)
  expect([status, stderr]).toMatchObject([
    1,
    expect.stringMatching(/error: stdout cannot be written: ENOSPC/),
  ])
  expect(stderr).not.toMatch(/node:|at .*\.ts/)
  expect(world.mark('reduced')).toBe('done\n')
  expect(world.runFolders()).toEqual([])
})

test('I5: SIGHUP, as of a closed terminal, stops it as Ctrl-C does, also twice', LIMIT, async ({ world }) => {
  const wait =
    'trap "sleep 1; echo tidy >> $MARKS/tidy; exit 1" TERM; echo now >> $MARKS/at; sleep 600 & wait'
  const running = world.launch({
    map: { input: { items: [1] }, agent_template: [{ shell: `test -e $MARKS/go || { ${wait}; }` }] },
  })
  await world.untilMarked('at')
  running.kill('SIGHUP')
  running.kill('SIGHUP')
  const { code, json } = await world.ended(running)
  expect([code, json?.status], running.stderr).toEqual([130, 'interrupted'])
  expect(world.lines('tidy')).toEqual(['tidy'])
  world.setMark('go')
  const resumed = await world.curfew(['resume', world.runFolders()[0]!, '--json'])
  expect([resumed.code, resumed.json?.counts.successful]).toEqual([0, 1])
})
