// Tasks run from a store with 1,000 and with 1,000,000 others pending: ready ones of the same name, delayed
// ones, and ready ones of a name that this process does not know. The rate of the same 5,000 tasks is
// compared, and the memory of the process. The others are copies of one scheduled task, made by SQL.

import { DatabaseSync } from 'node:sqlite'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Benchmark, Measures, Place } from '../benchmark.ts'
import { Countdown } from '../benchmark.ts'
import { probeDatabase } from '../database-probe.ts'

const MEASURED = 5_000
const KINDS = ['ready', 'delayed', 'unknown'] as const
const TOMORROW_MS = 86_400_000

const ratio = (kind: string) => ({ label: `${kind}: times slower`, better: 'lower', digits: 2 }) as const
const memory = (kind: string) => ({ label: `${kind}: MB more heap`, better: 'lower', digits: 1 }) as const
const rate = (kind: string) =>
  ({ label: `${kind}: tasks/s with the most`, better: 'higher', digits: 0 }) as const

export const backlog: Benchmark = {
  title: 'running 5,000 tasks beside 1,000,000 pending ones, against beside 1,000',
  rounds: 1,
  metrics: Object.fromEntries(
    KINDS.flatMap((kind) => [
      [`${kind}Ratio`, ratio(kind)],
      [`${kind}Rate`, rate(kind)],
      [`${kind}HeapMb`, memory(kind)],
    ]),
  ),
  async run(place) {
    const large = place.quick ? 20_000 : 1_000_000
    const sql = await openTasks(place.store)
    await scheduleTemplate(place)
    const measures: Measures = {}
    for (const kind of KINDS) {
      await sql.fill(kind, 1_000)
      const few = await measure(place)
      await sql.fill(kind, large)
      const many = await measure(place)
      measures[`${kind}Ratio`] = few.perSecond / many.perSecond
      measures[`${kind}Rate`] = many.perSecond
      measures[`${kind}HeapMb`] = many.heapMb - few.heapMb
    }
    await sql.end()
    return measures
  },
}

async function scheduleTemplate({ store, open }: Place): Promise<void> {
  const session = await open({ store, purpose: 'throughput', concurrency: 1, handler: async () => {} })
  await session.schedule(0, { delayMs: TOMORROW_MS })
  await session.close()
}

async function measure({ store, open }: Place): Promise<{ perSecond: number; heapMb: number }> {
  const left = new Countdown(MEASURED)
  let firstAt = 0
  const session = await open({
    store,
    purpose: 'throughput',
    concurrency: 100,
    handler: async () => {
      firstAt ||= performance.now()
      left.down()
    },
  })
  await left.done
  const perSecond = MEASURED / ((performance.now() - firstAt) / 1000)
  collectGarbage()
  const heapMb = process.memoryUsage().heapUsed / 2 ** 20
  await session.close()
  return { perSecond, heapMb }
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  gc()
}

type Kind = (typeof KINDS)[number]

interface Tasks {
  /** Leaves the template, so many tasks of the kind, and the tasks that are measured. */
  fill(kind: Kind, count: number): Promise<void>
  end(): Promise<void>
}

/** The columns that make a copy of the delayed template one that may start now. */
const READY = { ready: '1', start_at: 't.created_at', due_at: 'null' }
const UNKNOWN = { ...READY, name: `'unknown'` }
const CHANGES: Record<Kind, Record<string, string>> = { ready: READY, delayed: {}, unknown: UNKNOWN }

async function openTasks(store: string): Promise<Tasks> {
  const statements = (
    table: string,
    columns: string[],
    mark: string,
    changes: Record<string, string>,
    series: string,
  ) => {
    // An id is a prefix, 10 digits of time and 16 others.
    const all: Record<string, string> = { id: `substr(t.id, 1, 12) || '${mark}' || ${series}`, ...changes }
    const values = columns.map((column) => all[column] ?? `t.${column}`)
    return `insert into ${table} (${columns.join()}) select ${values.join()} from ${table} t`
  }
  const isTemplate = `status = 'pending' and substr(id, 13, 1) not in ('~', '!')`
  if (store.startsWith('postgres')) {
    const probe = await probeDatabase(store)
    const columns = async () =>
      (
        await probe.rows<{ name: string }>(
          `select column_name as name from information_schema.columns where table_schema = 'curfew' and table_name = 'tasks'`,
        )
      ).map(({ name }) => name)
    const copy = async (mark: string, changes: Record<string, string>, count: number) =>
      probe.rows(
        `${statements('curfew.tasks', await columns(), mark, changes, `lpad(i::text, 15, '0')`)}, generate_series(1, ${count}) i where t.${isTemplate.replace('substr(id', 'substr(t.id')}`,
      )
    return {
      fill: async (kind, count) => {
        await probe.rows(`delete from curfew.tasks where not (${isTemplate})`)
        await copy('!', CHANGES[kind], count)
        await copy('~', READY, MEASURED)
        await probe.rows('vacuum analyze curfew.tasks')
      },
      end: () => probe.end(),
    }
  }
  const withDatabase = <T>(use: (database: DatabaseSync) => T): T => {
    const database = new DatabaseSync(store)
    try {
      return use(database)
    } finally {
      database.close()
    }
  }
  return {
    fill: async (kind, count) =>
      withDatabase((database) => {
        const columns = database.prepare(`select name from pragma_table_info('tasks')`).all() as {
          name: string
        }[]
        const copy = (mark: string, changes: Record<string, string>, copies: number) =>
          database.exec(
            `with recursive series (i) as (select 1 union all select i + 1 from series where i < ${copies})
            ${statements(
              'tasks',
              columns.map(({ name }) => name),
              mark,
              changes,
              `printf('%015d', i)`,
            )}, series where t.${isTemplate.replace('substr(id', 'substr(t.id')}`,
          )
        database.exec(`delete from tasks where not (${isTemplate})`)
        copy('!', CHANGES[kind], count)
        copy('~', READY, MEASURED)
        database.exec('analyze')
      }),
    end: async () => {},
  }
}
