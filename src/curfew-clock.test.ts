import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Curfew, task } from './curfew.ts'
import { VirtualClock } from './testing/testing.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'curfew-clock-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

/** A machine whose clock was set back by an hour while nothing ran. */
class SetBackClock extends VirtualClock {
  override readonly virtual = undefined as never
}

test('a clock that was set back while nothing ran does not make time go back', async () => {
  const store = path.join(folder, 'tasks.db')
  const work = task({ name: 'work', run: () => 1 })
  const start = Date.UTC(2026, 0, 1)
  const first = await Curfew.open({ store, clock: new SetBackClock(start) })
  const before = await (await first.schedule(work, null, { timeout: '2h' })).view()
  await first.close()
  const second = await Curfew.open({ store, clock: new SetBackClock(start - 3_600_000) })
  const after = await (await second.schedule(work, null, { timeout: '2h' })).view()
  await second.close()
  expect(before.createdAt).toBe(start)
  expect(after.createdAt).toBeGreaterThanOrEqual(before.createdAt)
  expect(after.deadlineAt).toBeGreaterThanOrEqual(before.deadlineAt as number)
})
