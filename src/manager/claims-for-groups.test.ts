// Workers that can run different tasks, at one manager: none of them is idle while there is work for it.
import { expect, onTestFinished, test, vi } from 'vitest'
import { Curfew, task } from '../curfew.ts'
import { SILENT } from '../store/fixtures/stores.ts'

test('what is stored beside a claim of older work runs at another worker that has room for it', async () => {
  const holding: (() => void)[] = []
  const ran: number[] = []
  const older = task({ name: 'older', run: () => new Promise<void>((resolve) => holding.push(resolve)) })
  const quick = task({
    name: 'quick',
    run: (n: number) => {
      ran.push(n)
    },
  })
  const tasks = [older, quick]
  const manager = await Curfew.open({
    ...{ store: ':memory:', tasks, concurrency: 4, listen: '127.0.0.1:0', logger: SILENT },
  })
  onTestFinished(() => manager.close())
  const worker = await Curfew.work({ managers: manager.url as string, tasks: [quick], logger: SILENT })
  onTestFinished(() => worker.close())
  await worker.attached()
  await manager.scheduleMany(older, new Array(16).fill(undefined))
  for (let n = 0; n < 3; n++) {
    await vi.waitUntil(() => holding.length === 4)
    // Their ends and the new task are one transaction, whose claim takes older ones.
    for (const end of holding.splice(0)) end()
    await Promise.resolve()
    await manager.schedule(quick, n)
    await vi.waitUntil(() => ran.length > n, { timeout: 10_000 })
  }
  expect(ran).toEqual([0, 1, 2])
  // The last of them: nobody waits for their grace.
  await vi.waitUntil(() => holding.length === 4)
  for (const end of holding) end()
})
