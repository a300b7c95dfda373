import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, fstatSync, openSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { clock, temporaryFolder } from './fixtures/process-probe.ts'
import { endStarts, killWriters } from './hanging-start.ts'

const looks = vi.hoisted(() => ({ refused: 0, left: 2 }))

vi.mock('./process-table.ts', async (original) => {
  const table = await original<typeof import('./process-table.ts')>()
  const listPids = () => {
    if (looks.left-- <= 0) return table.listPids()
    looks.refused++
    throw Object.assign(new Error('no'), { code: 'EMFILE' })
  }
  return { ...table, listPids }
})

test.skipIf(process.platform !== 'linux')(
  'without a file descriptor to look with it is looked again, and nobody else is touched',
  async () => {
    const dir = temporaryFolder()
    const [pipe, another] = ['pipe', 'another'].map((name) => openSync(join(dir, name), 'w')) as [
      number,
      number,
    ]
    const start = (fd: number) => spawn('sleep', ['1000'], { stdio: ['ignore', fd, 'ignore'] })
    const [writer, stranger] = [start(pipe), start(another)]
    const killing = killWriters(clock, pipe)
    onTestFinished(() => {
      killing.cancel()
      stranger.kill('SIGKILL')
      for (const fd of [pipe, another]) closeSync(fd)
      rmSync(dir, { recursive: true })
    })
    const [, signal] = await once(writer, 'exit')
    expect([signal, looks.refused, stranger.exitCode, stranger.signalCode]).toEqual([
      'SIGKILL',
      2,
      null,
      null,
    ])
  },
)

test.skipIf(process.platform !== 'linux')(
  'before an exit nobody goes on with a pipe, also who has not put it in its place or not begun',
  async () => {
    const dir = temporaryFolder()
    const open = (name: string) => openSync(join(dir, name), 'w')
    const [pipe, another] = [open('pipe'), open('another')]
    const start = (stdio: ('ignore' | number)[]) => spawn('sleep', ['1000'], { stdio })
    // As a copy of this process has it until it runs something else: under the same number.
    const copied = start(Array.from({ length: pipe + 1 }, (_, fd) => (fd === pipe ? pipe : 'ignore')))
    const inPlace = start(['ignore', pipe, 'ignore'])
    const stranger = start(['ignore', another, another])
    onTestFinished(() => {
      stranger.kill('SIGKILL')
      closeSync(another)
      rmSync(dir, { recursive: true })
    })
    const ends = [copied, inPlace].map((child) => once(child, 'exit'))
    endStarts([pipe])
    expect(await Promise.all(ends)).toEqual([
      [null, 'SIGKILL'],
      [null, 'SIGKILL'],
    ])
    expect([stranger.exitCode, stranger.signalCode]).toEqual([null, null])
    expect(() => fstatSync(pipe)).toThrow('EBADF')
  },
)
