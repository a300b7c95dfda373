import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { SystemClock } from '../../core/system-clock.ts'
import { newRow, newTask } from '../../engine/fixtures/task-rows.ts'
import { MIGRATIONS } from '../migrations.ts'
import type { Statement } from '../statement.ts'
import { run, runAll } from '../statement.ts'
import type { StoreError } from '../store-error.ts'
import { refuseOldSqlite, SqliteStore } from './sqlite-store.ts'

let folder: string
let file: string
const opened: SqliteStore[] = []

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'curfew-sqlite-'))
  file = path.join(folder, 'store.db')
})
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close()
  rmSync(folder, { recursive: true, force: true })
})

function open(at = file): SqliteStore {
  const store = SqliteStore.open(at, new SystemClock(), 'n_1')
  opened.push(store)
  return store
}

async function close(store: SqliteStore): Promise<void> {
  opened.splice(opened.indexOf(store), 1)
  await store.close()
}

function refusal(at = file): StoreError {
  try {
    open(at)
  } catch (error) {
    return error as StoreError
  }
  throw new Error('it was opened')
}

const insert = (store: SqliteStore, ...ids: string[]) =>
  store.write(null, () => runAll(store.statements.hot.insertTasks(ids.map((id) => newTask({ id })))))
const value = async (store: SqliteStore, sql: string) =>
  Object.values((await store.read(() => run<object>({ sql, params: [] })))[0] ?? {})[0]

describe('a file', () => {
  test('is kept in WAL mode, synced at every commit, with foreign keys and without mmap', async () => {
    const store = open()
    expect(await value(store, 'pragma journal_mode')).toBe('wal')
    expect(await value(store, 'pragma synchronous')).toBe(2)
    expect(await value(store, 'pragma foreign_keys')).toBe(1)
    expect(await value(store, 'pragma mmap_size')).toBe(0)
    expect(await value(store, 'pragma locking_mode')).toBe('exclusive')
  })

  test('keeps its rows when it is opened again', async () => {
    const first = open()
    await insert(first, 't_1')
    await close(first)
    const second = open()
    const rows = await second.read(() => run(second.statements.readTasks(['t_1'])))
    expect(rows.map((row) => ({ ...row }))).toEqual([newRow()])
  })

  test('of a newer version is refused, says what it is and what is known, and is left alone', async () => {
    await close(open())
    const raw = new DatabaseSync(file)
    raw.exec(`update meta set value = '99'`)
    raw.close()
    const error = refusal()
    expect(error.code).toBe('store_refused')
    expect(error.message).toContain(
      `${file} has schema version 99; this version of curfew knows up to ${MIGRATIONS.length}`,
    )
    const after = new DatabaseSync(file)
    expect(after.prepare('select value from meta').get()).toEqual({ value: '99' })
    after.close()
  })

  test('that is no database is refused and left alone', () => {
    writeFileSync(file, 'dear diary, '.repeat(1_000))
    expect(refusal()).toMatchObject({ code: 'store_failed', message: `${file} is not a SQLite database` })
    expect(readFileSync(file, 'utf8')).toBe('dear diary, '.repeat(1_000))
    expect(existsSync(`${file}.lock`)).toBe(false)
  })

  test('in a folder that is missing, or where nothing can be written, is refused with a hint', () => {
    // Not by its mode: these tests may run as root.
    for (const nowhere of [path.join(folder, 'missing', 'store.db'), '/proc/store.db', folder]) {
      expect(refusal(nowhere)).toMatchObject({
        code: 'store_unavailable',
        message: expect.stringContaining(`cannot open the store ${nowhere}`),
        hint: 'The folder must exist and be writable.',
      })
    }
  })
})

describe('the lock', () => {
  const holderProgram = fileURLToPath(new URL('../fixtures/store-holder.ts', import.meta.url))

  test('of a living process is told with its pid, and dies with it', async () => {
    const holder = spawn(process.execPath, [holderProgram, file], { stdio: ['pipe', 'pipe', 'inherit'] })
    try {
      await once(holder.stdout, 'data')
      expect(refusal()).toMatchObject({
        code: 'store_unavailable',
        message: expect.stringContaining(`${file} is in use by process ${holder.pid}`),
      })
    } finally {
      const exited = once(holder, 'exit')
      holder.kill('SIGKILL')
      await exited
    }
    expect(JSON.parse(readFileSync(`${file}.lock`, 'utf8'))).toMatchObject({
      pid: holder.pid,
      nodeId: 'n_holder',
    })
    await insert(open(), 't_1')
    expect(JSON.parse(readFileSync(`${file}.lock`, 'utf8'))).toMatchObject({
      pid: process.pid,
      nodeId: 'n_1',
    })
  })

  test('is told without a name when nobody knows whose it is', () => {
    open()
    // A pid that was given out again is another process.
    writeFileSync(`${file}.lock`, JSON.stringify({ pid: process.pid, startedAt: '1', nodeId: 'n_0' }))
    expect(refusal().message).toContain('is in use by another process')
    writeFileSync(`${file}.lock`, 'rubbish')
    expect(refusal().message).toContain('is in use by another process')
  })

  test('is let go with the store, and its file is not left for others to wonder about', async () => {
    const store = open()
    expect(statSync(`${file}.lock`).mode & 0o777).toBe(0o600)
    await close(store)
    expect(existsSync(`${file}.lock`)).toBe(false)
    open()
  })

  test('memory has none', () => {
    open(':memory:')
    open(':memory:')
    expect(existsSync(':memory:.lock')).toBe(false)
  })
})

describe('trouble', () => {
  test('a file that cannot be written is told as such, not as a disk that is damaged', async () => {
    await close(open())
    expect(refusal(`file:${file}?mode=ro`)).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/cannot be locked\n.*must be writable/),
    })
  })

  test('a full disk rolls back and says so; once there is space it goes on', async () => {
    const store = open()
    const pages = Number(await value(store, 'pragma page_count'))
    await value(store, `pragma max_page_count = ${pages + 2}`)
    const many = Array.from({ length: 500 }, (_, i) => `t_${i}`)
    await expect(insert(store, ...many)).rejects.toMatchObject({ code: 'store_full' })
    expect(await value(store, 'select count(*) from tasks')).toBe(0)
    await value(store, 'pragma max_page_count = 100000')
    await insert(store, ...many)
    expect(await value(store, 'select count(*) from tasks')).toBe(500)
  })

  test.each([
    ['removed', () => rmSync(file)],
    ['moved away', () => renameSync(file, `${file}.old`)],
    [
      'replaced',
      () => {
        copyFileSync(file, `${file}.new`)
        renameSync(`${file}.new`, file)
      },
    ],
  ])('a file that was %s acknowledges nothing any more', async (_, take) => {
    const store = open()
    await insert(store, 't_1')
    take()
    const refused = { code: 'store_failed', message: expect.stringMatching(/removed or moved away|replaced/) }
    await expect(insert(store, 't_2')).rejects.toMatchObject(refused)
    await expect(value(store, 'select 1')).rejects.toMatchObject(refused)
  })

  test('whoever made another in the place of one that was moved keeps its lock', async () => {
    const store = open()
    renameSync(file, `${file}.old`)
    const other = SqliteStore.open(file, new SystemClock(), 'n_2')
    opened.push(other)
    await close(store)
    expect(existsSync(`${file}.lock`)).toBe(true)
  })

  test('a damaged file stops every acknowledgement for good', async () => {
    const healthy = open()
    await insert(healthy, ...Array.from({ length: 500 }, (_, i) => `t_${i}`))
    const root = Number(await value(healthy, `select rootpage from sqlite_schema where name = 'events'`))
    const size = Number(await value(healthy, 'pragma page_size'))
    await close(healthy)
    const handle = openSync(file, 'r+')
    writeSync(handle, Buffer.alloc(size, 0x5a), 0, size, (root - 1) * size)
    closeSync(handle)
    const store = open()
    const event: Statement = store.statements.insertEvents([{ rootId: 't_1', seq: 2, at: 1, body: '[]' }])
    await expect(store.write(null, () => run(event))).rejects.toMatchObject({ code: 'store_failed' })
    // What would have been fine is refused as well, with the same error.
    await expect(insert(store, 't_new')).rejects.toMatchObject({ code: 'store_failed' })
    await expect(value(store, 'select 1')).rejects.toMatchObject({ code: 'store_failed' })
  })
})

describe('the version', () => {
  test.each(['3.51.2', '3.9.99', '3.50.4', '3.51', '2.99.99'])(
    '%s can corrupt the log and is refused',
    (version) => {
      expect(() => refuseOldSqlite(version)).toThrow(expect.objectContaining({ code: 'store_failed' }))
      expect(() => refuseOldSqlite(version)).toThrow(`SQLite ${version} is too old: 3.51.3 or newer`)
    },
  )

  test.each(['3.51.3', '3.51.10', '3.52.0', '4.0.0'])('%s is fine', (version) => {
    expect(() => refuseOldSqlite(version)).not.toThrow()
  })
})

test('claiming and firing go by the indexes made for them', async () => {
  const store = open()
  const plan = async ({ sql, params }: Statement): Promise<string> =>
    JSON.stringify(await store.read(() => run({ sql: `explain query plan ${sql}`, params })))
  const claim = { now: 1, nodeId: 'n_1', token: 'a', queues: ['a', 'b'], names: ['x', 'y'], limit: 5 }
  expect(await plan(store.statements.hot.claimTasks(claim).next().value as Statement)).toContain(
    'USING INDEX tasks_claim (queue=? AND name=?)',
  )
  expect(await plan(store.statements.hot.claimTasks(claim).next().value as Statement)).not.toMatch(
    /SCAN tasks|SCAN t\b/,
  )
  expect(await plan(store.statements.hot.dueTasks(1, [], 0, 5))).toContain('USING INDEX tasks_due (due_at<?)')
  expect(await plan(store.statements.hot.dueTasks(1, [], 0, 5))).not.toContain('TEMP B-TREE')
  expect(await plan(store.statements.nextDue([], 1))).toContain('tasks_due')
})
