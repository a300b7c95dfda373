import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { loadConfig } from './config.ts'
import type { Engine } from './find-engine.ts'
import { TestIo } from './fixtures/test-io.ts'
import { attachWorker } from './lent-worker.ts'

let cwd: string
beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-attach-'))
})
afterEach(() => rm(cwd, { recursive: true, force: true }))

/** To a process that was there a moment ago, and has closed its socket. */
async function attach({ gone, stop }: Record<'gone' | 'stop', AbortSignal>) {
  const io = new TestIo({ cwd })
  const config = await loadConfig(io, 'run', { log: 'silent' })
  const engine = { via: 'process', who: 'process 7', addresses: [`unix:${cwd}/none.sock`], gone } as unknown
  const definitions = { tasks: [], agents: [], workflows: [], jobs: [] }
  const only = { queue: 'letters', concurrency: 1 }
  return attachWorker(io, engine as Engine, config, definitions, { only, stop })
}

test('a process that goes before a worker is attached to it is lost, and not waited for', async () => {
  const [gone, stop] = [new AbortController(), new AbortController()]
  const attaching = attach({ gone: gone.signal, stop: stop.signal })
  gone.abort()
  await expect(attaching).rejects.toMatchObject({ code: 'unreachable', message: 'process 7 is gone' })
})

test('a signal ends the waiting too', async () => {
  const [gone, stop] = [new AbortController(), new AbortController()]
  const attaching = attach({ gone: gone.signal, stop: stop.signal })
  stop.abort()
  expect(await attaching).toBeNull()
})
