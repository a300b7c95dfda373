import { expect, test } from 'vitest'
import { Curfew, task } from '../curfew.ts'
import { SILENT } from '../store/fixtures/stores.ts'

const noop = task({ name: 'noop', run: (n: number) => n })

test('tasks have ids in the order in which a client was asked for them, however they travel', async () => {
  await using curfew = await Curfew.open({
    ...{ store: ':memory:', tasks: [noop], concurrency: 0, listen: '127.0.0.1:0', logger: SILENT },
  })
  await using client = await Curfew.connect(curfew.url as string)
  const numbers = Array.from({ length: 1_001 }, (_, n) => n)
  const all = await Promise.all([
    client.scheduleMany(noop, numbers),
    client.schedule(noop, 1_001),
    client.scheduleMany(noop, [1_002, 1_003]),
    client.schedule(noop, 1_004),
  ])
  const ids = all.flat().map(({ id }) => id)
  expect(ids).toHaveLength(1_005)
  expect(ids).toEqual(ids.toSorted())
})
