import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test, vi } from 'vitest'
import { Curfew, task } from './curfew.ts'

test('what ended while nobody could be reached is reported to the manager that comes back', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-working-'))
  const store = path.join(folder, 'tasks.db')
  const started = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<string>()
  const work = task({
    name: 'work',
    run: async () => {
      started.resolve()
      return ended.promise
    },
  })
  let manager = await Curfew.open({ store, concurrency: 0, listen: '127.0.0.1:0' })
  const url = manager.url as string
  const worker = await Curfew.work({ managers: url, tasks: [work] })
  // It stands where the manager was and turns everybody away.
  const nobody = createServer((socket) => {
    turnedAway++
    socket.destroy()
  })
  let turnedAway = 0
  try {
    await worker.attached()
    const { id } = await manager.schedule(work, null)
    await started.promise
    await manager.close()
    nobody.listen(Number(new URL(url).port), '127.0.0.1')
    await once(nobody, 'listening')
    await vi.waitUntil(() => turnedAway >= 2, { timeout: 4_000 })
    ended.resolve('done')
    await vi.waitUntil(() => turnedAway >= 4, { timeout: 10_000 })
    nobody.close()
    manager = await Curfew.open({ store, concurrency: 0, listen: new URL(url).host })
    const back = manager.task(id)
    await vi.waitFor(async () => expect((await back.view()).status).toBe('completed'), { timeout: 8_000 })
    const { attempts } = await back.explain()
    expect(attempts.map(({ status }) => status)).toEqual(['completed'])
  } finally {
    ended.resolve('')
    nobody.close()
    await worker.close()
    await manager.close()
    await rm(folder, { recursive: true, force: true })
  }
})
