// The raw limit: the rows that a task without trouble writes (scheduled, claimed, ended), in batches of 500
// with a commit each, by SQL alone. One after the other, and, where the store takes several writers, with a
// connection for each of the three at the same time.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import type { Claimed, RawStore } from './raw-store.ts'
import { BATCH, openRawPostgres, openRawSqlite } from './raw-store.ts'

export const raw: Benchmark = {
  title: 'the raw limit: the same rows in SQL batches of 500, no engine',
  rounds: 3,
  metrics: {
    inserted: { label: 'inserted/s', better: 'higher', digits: 0 },
    claimed: { label: 'claimed/s', better: 'higher', digits: 0 },
    ended: { label: 'ended/s', better: 'higher', digits: 0 },
    tasksPerSecond: { label: 'tasks/s one after the other', better: 'higher', digits: 0 },
    overlapped: { label: 'tasks/s at the same time', better: 'higher', digits: 0 },
  },
  async run({ store, quick }) {
    const count = quick ? 2_000 : 10_000
    const onPostgres = store.startsWith('postgres')
    const rows = await (onPostgres ? openRawPostgres(store) : openRawSqlite(store))
    await oneAfterTheOther(rows, BATCH)
    const ms = await oneAfterTheOther(rows, count)
    const overlapped = onPostgres ? count / ((await atTheSameTime(rows, count)) / 1000) : 'one writer'
    await rows.close()
    const perSecond = (spentMs: number) => count / (spentMs / 1000)
    return {
      inserted: perSecond(ms.insert),
      claimed: perSecond(ms.claim),
      ended: perSecond(ms.end),
      tasksPerSecond: perSecond(ms.insert + ms.claim + ms.end),
      overlapped,
    }
  },
}

async function oneAfterTheOther(rows: RawStore, count: number) {
  const ms = { insert: 0, claim: 0, end: 0 }
  const timed = async <T>(step: keyof typeof ms, work: () => T | Promise<T>): Promise<T> => {
    const startedAt = performance.now()
    const result = await work()
    ms[step] += performance.now() - startedAt
    return result
  }
  for (let done = 0; done < count; done += BATCH) await timed('insert', () => rows.insert())
  for (let ended = 0; ended < count; ) {
    const claimed = await timed('claim', () => rows.claim())
    await timed('end', () => rows.end(claimed))
    ended += claimed.length
  }
  return ms
}

async function atTheSameTime(rows: RawStore, count: number): Promise<number> {
  const running: Claimed[][] = []
  const insert = async () => {
    for (let inserted = 0; inserted < count; inserted += BATCH) await rows.insert()
  }
  const claim = async () => {
    for (let claimed = 0; claimed < count; claimed += running.at(-1)!.length) running.push(await rows.claim())
  }
  const end = async () => {
    for (let ended = 0; ended < count; ) {
      const batch = running.shift()
      if (batch === undefined || batch.length === 0) await sleep(1)
      else await rows.end(batch)
      ended += batch?.length ?? 0
    }
  }
  const startedAt = performance.now()
  await Promise.all([insert(), claim(), end()])
  return performance.now() - startedAt
}
