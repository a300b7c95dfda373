import { mkdtemp, rm } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { test } from 'vitest'
import { disturbances, trials } from '../scripts/acceptance/agent-arbitraries.ts'
import { expectation } from '../scripts/acceptance/agent-model.ts'
import { TrialRun } from '../scripts/acceptance/agent-trials.ts'
import { World } from '../scripts/acceptance/world.ts'
test('stats', async () => {
  const tx: number[] = [], ms: number[] = [], works: number[] = []
  let kills = 0, applied = 0, tied = 0
  for (const [t, d] of fc.sample(fc.tuple(trials(1e6), disturbances(1e6, 40)), 150)) {
    const e = await expectation(t, 2, true)
    if (e.tied) { tied++; continue }
    works.push(e.works.size)
    const folder = await mkdtemp('/dev/shm/curfew-agents-')
    const world = new World('file', path.join(folder, 'a.db'), folder)
    const at = performance.now()
    const r = await new TrialRun(world, t, d).run(e.overAt)
    kills += d.kills.length
    applied += world.store.split('+').length - 1 - d.restarts.filter((x) => x.how === 'kill').length
    tx.push(r.transactions)
    await world.dispose()
    ms.push(performance.now() - at)
    await rm(folder, { recursive: true, force: true })
  }
  for (const [n, l] of Object.entries({ tx, ms, works })) { l.sort((a, b) => a - b); console.log(n, l[Math.floor(l.length / 2)], l[Math.floor(l.length * 0.9)], l.at(-1)) }
  console.log({ kills, applied, tied })
}, 100000)
