import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { Statement } from '../store/statement.ts'
import type { ReadStore } from '../store/store.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { GatheredReads } from './gathered-reads.ts'

interface Row {
  id: string
}

/** Over a store that has everything that is asked for, and answers in a turn of its own. */
function setUp(rowOf: (id: string) => Row) {
  const clock = new VirtualClock()
  const asked: number[] = []
  const read = async (work: () => Generator<Statement<Row>, Row[], Row[]>) => {
    const reading = work()
    const { value } = reading.next()
    const ids = (value as Statement<Row>).params as string[]
    asked.push(ids.length)
    await setImmediate()
    return reading.next(ids.map(rowOf)).value
  }
  const reads = new GatheredReads<Row>({ read } as unknown as ReadStore, clock, (ids) => ({
    sql: '',
    params: ids,
  }))
  return { reads, asked, clock }
}

const names = (count: number) => Array.from({ length: count }, (_, i) => `t_${i}`)

test('what is asked for in one turn is read together, a hundred at a time', async () => {
  const { reads, asked, clock } = setUp((id) => ({ id }))
  const rows = Promise.all(names(250).map((id) => reads.read(id)))
  await clock.advance(1)
  expect((await rows).map((row) => row?.id)).toEqual(names(250))
  expect(asked).toEqual([100, 100, 50])
})

test('a row that was answered is not kept until all are', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const answered: WeakRef<Row>[] = []
  const { reads, clock } = setUp((id) => {
    const row = { id }
    answered.push(new WeakRef(row))
    return row
  })
  let most = 0
  const all = Promise.all(
    names(1_000).map((id) =>
      reads.read(id).then((row) => {
        if (!row?.id.endsWith('99')) return
        collect()
        most = Math.max(most, answered.filter((one) => one.deref()).length)
      }),
    ),
  )
  await clock.advance(1)
  await all
  expect(answered).toHaveLength(1_000)
  expect(most).toBeLessThanOrEqual(200)
})
