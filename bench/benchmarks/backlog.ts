// Tasks run from a store with 1,000 and with 1,000,000 others pending: ready ones of the same name, delayed
// ones, and ready ones of a name that this process does not know. The rate of the same 5,000 tasks is
// compared, and the memory of the process. The others are copies of one scheduled task, made by SQL.

import { DatabaseSync } from 'node:sqlite'
import type { Benchmark, Measures, Place } from '../benchmark.ts'
import { Countdown, median } from '../benchmark.ts'
import { probeDatabase } from '../database-probe.ts'
import { heapMb } from '../process-usage.ts'

const MEASURED = 5_000
const REPEATS = 3
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
      const few: Sample[] = []
      for (let repeat = 0; repeat < REPEATS; repeat++) {
        await sql.fill(kind, 1_000)
        few.push(await measure(place))
      }
      await sql.fill(kind, large)
      const many = [await measure(place)]
      while (many.length < REPEATS) {
        await sql.addMeasured()
        many.push(await measure(place))
      }
      const typicalRate = (samples: Sample[]) => median(samples.map(({ perSecond }) => perSecond))
      const typicalHeap = (samples: Sample[]) => median(samples.map(({ heapMb }) => heapMb))
      measures[`${kind}Ratio`] = typicalRate(few) / typicalRate(many)
      measures[`${kind}Rate`] = typicalRate(many)
      measures[`${kind}HeapMb`] = typicalHeap(many) - typicalHeap(few)
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

interface Sample {
  perSecond: number
  heapMb: number
}

async function measure({ store, open }: Place): Promise<Sample> {
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
  const heap = heapMb()
  await session.close()
  return { perSecond, heapMb: heap }
}

type Kind = (typeof KINDS)[number]

interface Tasks {
  /** Leaves the template, so many tasks of the kind, and the tasks that are measured. */
  fill(kind: Kind, count: number): Promise<void>
  /** The tasks that are measured once more. */
  addMeasured(): Promise<void>
  end(): Promise<void>
}

/** The columns that make a copy of the delayed template one that may start now. */
const READY = { ready: '1', start_at: 't.created_at', due_at: 'null' }
const UNKNOWN = { ...READY, name: `'unknown'` }
const CHANGES: Record<Kind, Record<string, string>> = { ready: READY, delayed: {}, unknown: UNKNOWN }

/** An id is a prefix, 10 digits of time and 16 others; the first of those marks a copy. */
const IS_TEMPLATE = `substr(t.id, 13, 1) <> '~'`

/** Each fill has ids of its own: what was recorded of the last one's tasks may still be there. */
let fills = 0

function copyStatement(
  table: string,
  columns: readonly string[],
  changes: Record<string, string>,
  series: { from: string; digits: string },
): string {
  const mark = `'~${String(fills++).padStart(3, '0')}'`
  const values: Record<string, string> = {
    id: `substr(t.id, 1, 12) || ${mark} || ${series.digits}`,
    ...changes,
  }
  const selected = columns.map((column) => values[column] ?? `t.${column}`)
  return `insert into ${table} (${columns.join()}) select ${selected.join()} from ${table} t, ${series.from} where ${IS_TEMPLATE}`
}

function openTasks(store: string): Promise<Tasks> | Tasks {
  return store.startsWith('postgres') ? openPostgresTasks(store) : openSqliteTasks(store)
}

async function openPostgresTasks(url: string): Promise<Tasks> {
  const probe = await probeDatabase(url)
  const copy = async (changes: Record<string, string>, copies: number) => {
    const columns = await probe.rows<{ name: string }>(
      `select column_name as name from information_schema.columns
      where table_schema = 'curfew' and table_name = 'tasks'`,
    )
    const names = columns.map(({ name }) => name)
    const series = { from: `generate_series(1, ${copies}) i`, digits: `lpad(i::text, 12, '0')` }
    await probe.rows(copyStatement('curfew.tasks', names, changes, series))
  }
  return {
    fill: async (kind, count) => {
      await probe.rows(`delete from curfew.tasks t where not (${IS_TEMPLATE})`)
      await copy(CHANGES[kind], count)
      await copy(READY, MEASURED)
      await probe.rows('vacuum analyze curfew.tasks')
    },
    addMeasured: () => copy(READY, MEASURED),
    end: () => probe.end(),
  }
}

/** The engine holds the file alone, so it is opened for each change. */
function openSqliteTasks(file: string): Tasks {
  const change = (work: (database: DatabaseSync) => void) => {
    const database = new DatabaseSync(file)
    work(database)
    database.close()
  }
  const copy = (database: DatabaseSync, changes: Record<string, string>, copies: number) => {
    const columns = database.prepare(`select name from pragma_table_info('tasks')`).all()
    const names = columns.map(({ name }) => String(name))
    const series = { from: 'series', digits: `printf('%012d', i)` }
    database.exec(
      `with recursive series (i) as (select 1 union all select i + 1 from series where i < ${copies})
      ${copyStatement('tasks', names, changes, series)}`,
    )
  }
  return {
    fill: async (kind, count) =>
      change((database) => {
        database.exec(`delete from tasks as t where not (${IS_TEMPLATE})`)
        copy(database, CHANGES[kind], count)
        copy(database, READY, MEASURED)
        database.exec('analyze')
      }),
    addMeasured: async () => change((database) => copy(database, READY, MEASURED)),
    end: async () => {},
  }
}
