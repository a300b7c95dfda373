import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { findHolder, writeFileLock } from './file-lock.ts'

const holderProgram = fileURLToPath(new URL('../fixtures/store-holder.ts', import.meta.url))
let folder: string
let file: string

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'curfew-lock-'))
  file = path.join(folder, 'store.db')
  writeFileSync(file, '')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const written = () => JSON.parse(readFileSync(`${file}.lock`, 'utf8'))

test('the socket is told once it is there, and taken back', () => {
  const lock = writeFileLock(file, 'n_1')
  expect(findHolder(file)).toEqual({ pid: process.pid, socket: null })
  lock.setSocket('/run/a.sock')
  expect(findHolder(file)).toEqual({ pid: process.pid, socket: '/run/a.sock' })
  expect(written()).toMatchObject({ pid: process.pid, nodeId: 'n_1', socket: '/run/a.sock' })
  lock.setSocket(null)
  expect(findHolder(file)).toEqual({ pid: process.pid, socket: null })
  lock.remove()
  expect(findHolder(file)).toBeNull()
})

test('the file is its owner’s alone and replaced whole, whatever stood there', () => {
  writeFileSync(`${file}.lock`, 'of an old process', { mode: 0o666 })
  writeFileSync(`${file}.lock.new`, 'left by a crash', { mode: 0o666 })
  const lock = writeFileLock(file, 'n_1')
  expect(statSync(`${file}.lock`).mode & 0o777).toBe(0o600)
  const first = statSync(`${file}.lock`).ino
  lock.setSocket('/run/a.sock')
  expect(statSync(`${file}.lock`).mode & 0o777).toBe(0o600)
  expect(statSync(`${file}.lock`).ino).not.toBe(first)
  expect(readdirSync(folder).sort()).toEqual(['store.db', 'store.db.lock'])
})

test('a lock that was let go is not written again: the file may be another process’s', () => {
  const lock = writeFileLock(file, 'n_1')
  lock.remove()
  lock.setSocket('/run/a.sock')
  expect(existsSync(`${file}.lock`)).toBe(false)
})

test('another process is found with its socket for as long as it lives, also over a link', async () => {
  const link = path.join(folder, 'link.db')
  symlinkSync(file, link)
  const holder = spawn(process.execPath, [holderProgram, link, '/run/b.sock'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  try {
    await once(holder.stdout, 'data')
    expect(findHolder(file)).toEqual({ pid: holder.pid, socket: '/run/b.sock' })
    expect(findHolder(link)).toEqual({ pid: holder.pid, socket: '/run/b.sock' })
  } finally {
    const exited = once(holder, 'exit')
    holder.kill('SIGKILL')
    await exited
  }
  expect(written()).toMatchObject({ pid: holder.pid, socket: '/run/b.sock' })
  expect(findHolder(file)).toBeNull()
})

test('nobody is found where a file is missing, unreadable, or names a pid that was given out again', () => {
  expect(findHolder(path.join(folder, 'other.db'))).toBeNull()
  const startedAt = '1'
  for (const text of [
    '',
    'rubbish',
    'null',
    '{}',
    JSON.stringify({ pid: process.pid, startedAt, nodeId: 'n_0', socket: '/run/a.sock' }),
    JSON.stringify({ pid: `${process.pid}`, startedAt, nodeId: 'n_0' }),
  ]) {
    writeFileSync(`${file}.lock`, text)
    expect(findHolder(file), text).toBeNull()
  }
})

test('a file that names no socket is of a process that does not listen', () => {
  writeFileLock(file, 'n_1')
  const { socket: _, ...older } = written()
  writeFileSync(`${file}.lock`, JSON.stringify(older))
  expect(findHolder(file)).toEqual({ pid: process.pid, socket: null })
})
