import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { SystemClock } from '../../core/system-clock.ts'
import { newTask } from '../../engine/fixtures/task-rows.ts'
import { MIGRATIONS } from '../migrations.ts'
import { run, runAll } from '../statement.ts'
import type { StoreError } from '../store-error.ts'
import { SqliteReader } from './sqlite-reader.ts'
import { SqliteStore } from './sqlite-store.ts'

const holderProgram = fileURLToPath(new URL('../fixtures/store-holder.ts', import.meta.url))
const clock = new SystemClock()
let folder: string
let file: string
const opened: SqliteStore[] = []

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'curfew-reader-'))
  file = path.join(folder, 'store.db')
})
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close()
  rmSync(folder, { recursive: true, force: true })
})

function open(): SqliteStore {
  const store = SqliteStore.open(file, clock, 'n_1')
  opened.push(store)
  return store
}

async function close(store: SqliteStore): Promise<void> {
  opened.splice(opened.indexOf(store), 1)
  await store.close()
}

const insert = (store: SqliteStore, id: string) =>
  store.write(null, () => runAll(store.statements.hot.insertTasks([newTask({ id })])))

/** A store that was closed, with this task in it. */
async function make(id = 't_1'): Promise<void> {
  const store = open()
  await insert(store, id)
  await close(store)
}

/** As a killed process leaves it: the last commits stand in the log alone. */
async function makeCrashed(): Promise<void> {
  await make('t_1')
  const store = open()
  await insert(store, 't_2')
  copyFileSync(file, `${file}.copy`)
  copyFileSync(`${file}-wal`, `${file}.copy-wal`)
  await close(store)
  for (const end of ['', '-wal']) {
    copyFileSync(`${file}.copy${end}`, `${file}${end}`)
    rmSync(`${file}.copy${end}`)
  }
}

/** What stands in the folder. Never while this process has the store open: that would cost it its lock. */
const bytes = () =>
  Object.fromEntries(
    readdirSync(folder).map((name) => [name, readFileSync(path.join(folder, name), 'base64')]),
  )

const taskIds = async (reader: SqliteReader) =>
  (await reader.read(() => run<{ id: string }>({ sql: 'select id from tasks order by id', params: [] }))).map(
    ({ id }) => id,
  )

function refusal(at = file): StoreError {
  try {
    SqliteReader.open(at, clock)
  } catch (error) {
    return error as StoreError
  }
  throw new Error('it was opened')
}

describe('a store at rest', () => {
  test('is read without a file being made or a byte being changed', async () => {
    await make()
    const before = bytes()
    expect(Object.keys(before)).toEqual(['store.db'])
    const reader = SqliteReader.open(file, clock)
    expect(await taskIds(reader)).toEqual(['t_1'])
    await reader.close()
    expect(bytes()).toEqual(before)
  })

  test('is not held between reads: a process works on it meanwhile, and the next read sees what it did', async () => {
    await make()
    const reader = SqliteReader.open(file, clock)
    expect(await taskIds(reader)).toEqual(['t_1'])
    const store = open()
    await insert(store, 't_2')
    await expect(taskIds(reader)).rejects.toMatchObject({ code: 'store_unavailable' })
    await close(store)
    expect(await taskIds(reader)).toEqual(['t_1', 't_2'])
  })

  test('that is changed in the middle of a read is read again', async () => {
    await make()
    const reader = SqliteReader.open(file, clock)
    let passes = 0
    const seen = await reader.read(function* () {
      if (passes++ === 0) {
        const other = new DatabaseSync(file)
        other.exec(`update tasks set name = 'changed'`)
        other.close()
      }
      const [row] = yield* run<{ name: string }>({ sql: 'select name from tasks', params: [] })
      return row?.name
    })
    expect(seen).toBe('changed')
    expect(passes).toBe(2)
  })

  test('a reader that was closed reads no more', async () => {
    await make()
    const reader = SqliteReader.open(file, clock)
    await reader.close()
    await expect(taskIds(reader)).rejects.toMatchObject({ code: 'closed' })
  })

  test('cannot be written through a reader', async () => {
    await make()
    const reader = SqliteReader.open(file, clock)
    const before = bytes()
    await expect(reader.read(() => run({ sql: 'delete from tasks', params: [] }))).rejects.toThrow(/readonly/)
    expect(bytes()).toEqual(before)
  })
})

describe('the log of a killed process', () => {
  test('is read with what was committed last, and changes as little as the store itself', async () => {
    await makeCrashed()
    const before = bytes()
    expect(Object.keys(before).sort()).toEqual(['store.db', 'store.db-wal'])
    const reader = SqliteReader.open(file, clock)
    expect(await taskIds(reader)).toEqual(['t_1', 't_2'])
    await reader.close()
    const { 'store.db-shm': shared, ...after } = bytes()
    expect(after).toEqual(before)
    expect(shared).toBeDefined()
  })

  test('the file that SQLite makes to read it is removed by the next process, which loses nothing', async () => {
    await makeCrashed()
    SqliteReader.open(file, clock)
    expect(existsSync(`${file}-shm`)).toBe(true)
    const store = open()
    expect(existsSync(`${file}-shm`)).toBe(false)
    await insert(store, 't_3')
    await close(store)
    expect(readdirSync(folder)).toEqual(['store.db'])
    expect(await taskIds(SqliteReader.open(file, clock))).toEqual(['t_1', 't_2', 't_3'])
  })

  test('is found beside the store itself when that is reached over a link', async () => {
    await makeCrashed()
    const link = path.join(folder, 'link.db')
    symlinkSync(file, link)
    expect(await taskIds(SqliteReader.open(link, clock))).toEqual(['t_1', 't_2'])
  })

  test('cannot be read where nothing can be written beside it, which is told', async () => {
    await makeCrashed()
    symlinkSync(path.join(folder, 'nowhere', 'shm'), `${file}-shm`)
    expect(refusal()).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining(`cannot read the store ${file}`),
      hint: expect.stringContaining('its folder must be writable too'),
    })
  })
})

describe('a store in use', () => {
  test('by another process is refused with its pid, and can be read when that was killed', async () => {
    const holder = spawn(process.execPath, [holderProgram, file, '/run/a.sock'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    try {
      await once(holder.stdout, 'data')
      expect(refusal()).toMatchObject({
        code: 'store_unavailable',
        message: expect.stringContaining(`${file} is in use by process ${holder.pid}`),
        fields: { pid: holder.pid, socket: '/run/a.sock' },
      })
      expect(readdirSync(folder).sort()).toEqual(['store.db', 'store.db-wal', 'store.db.lock'])
    } finally {
      const exited = once(holder, 'exit')
      holder.kill('SIGKILL')
      await exited
    }
    // All of it, the schema too, stands in the log.
    expect(await taskIds(SqliteReader.open(file, clock))).toEqual([])
  })

  test('by somebody unknown is refused as well', () => {
    open()
    writeFileSync(`${file}.lock`, 'rubbish')
    expect(refusal()).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining(`${file} is in use by another process`),
    })
  })

  test('by this process is refused, and this process keeps its lock', async () => {
    open()
    expect(refusal().message).toContain(`${file} is in use by process ${process.pid}`)
    const other = spawn(process.execPath, [holderProgram, file], { stdio: ['pipe', 'pipe', 'pipe'] })
    try {
      let said = ''
      other.stderr.on('data', (chunk) => {
        said += chunk
      })
      const exited = once(other, 'exit')
      const isOpen = once(other.stdout, 'data').then(() => 'open')
      expect(await Promise.race([exited.then(() => 'refused'), isOpen])).toBe('refused')
      expect(said).toContain(`is in use by process ${process.pid}`)
    } finally {
      other.kill('SIGKILL')
    }
  })
})

describe('what is no store of this version', () => {
  const setVersion = (value: string) => {
    const raw = new DatabaseSync(file)
    raw.prepare(`update meta set value = ? where key = 'schema_version'`).run(value)
    raw.close()
  }

  test('a file that is missing is told and not made', () => {
    expect(refusal()).toMatchObject({
      code: 'store_missing',
      message: expect.stringContaining(`there is no store ${file}`),
    })
    expect(refusal(path.join(file, 'below')).code).toBe('store_missing')
    expect(readdirSync(folder)).toEqual([])
  })

  test('a folder is told', () => {
    mkdirSync(file)
    expect(refusal()).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('it is not a file'),
    })
  })

  test('a file that is no database is told and left alone', () => {
    writeFileSync(file, 'dear diary, '.repeat(1_000))
    const before = bytes()
    expect(refusal()).toMatchObject({ code: 'store_failed', message: `${file} is not a SQLite database` })
    expect(bytes()).toEqual(before)
  })

  test.each([
    ['an empty file', ''],
    ['a database of something else', 'create table meta (key text, value text)'],
    [
      'one that looks nearly like it',
      'create table meta (key text, value text); create table nodes (a); create table tasks (a)',
    ],
    [
      'one with tables of the same names',
      'create table meta (a); create table nodes (a); create table tasks (a)',
    ],
  ])('%s is told and left alone', (_, schema) => {
    writeFileSync(file, '')
    const other = new DatabaseSync(file)
    other.exec(schema)
    other.close()
    const before = bytes()
    expect(refusal()).toMatchObject({
      code: 'store_refused',
      message: expect.stringContaining(`${file} is not a Curfew store`),
    })
    expect(bytes()).toEqual(before)
  })

  test('a newer store is told with both versions and what to do, and left alone', async () => {
    await make()
    setVersion('99')
    const before = bytes()
    expect(refusal()).toMatchObject({
      code: 'store_refused',
      message: expect.stringContaining(
        `${file} has schema version 99; this version of curfew knows up to ${MIGRATIONS.length}`,
      ),
      hint: expect.stringContaining('Upgrade this one'),
    })
    expect(bytes()).toEqual(before)
  })

  test('an older store is told with both versions and what to do, and not migrated', async () => {
    await make()
    setVersion('0')
    const before = bytes()
    expect(refusal()).toMatchObject({
      code: 'store_refused',
      message: expect.stringContaining(
        `${file} has schema version 0; this version of curfew reads ${MIGRATIONS.length}`,
      ),
      hint: expect.stringContaining('brings it up to date'),
    })
    expect(bytes()).toEqual(before)
  })
})
