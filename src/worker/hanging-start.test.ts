import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { clock, temporaryFolder } from './fixtures/process-probe.ts'
import { killWriters } from './hanging-start.ts'

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
