// A log is not what anything depends on: it may throw, or its disk may be full.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import type { Logger } from './curfew.ts'
import { Curfew, TaskTimedOut, task } from './curfew.ts'
import { VirtualClock } from './testing/testing.ts'

const fails = (): void => {
  throw new Error('no line can be written')
}
const failing: Logger = { debug: fails, info: fails, warn: fails, error: fails }

test('a logger that throws holds up nothing', async () => {
  const clock = new VirtualClock()
  const late = task({ name: 'late', timeout: '1s', run: (_, { signal }) => clock.sleep('1h', signal) })
  const says = task({
    name: 'says',
    run: (_, { log }) => {
      log.info({}, 'on its way')
      return 'done'
    },
  })
  const curfew = await Curfew.open({ store: ':memory:', tasks: [late, says], clock, logger: failing })
  const handle = await curfew.schedule(late)
  await clock.advance('1s')
  await expect(handle.result()).rejects.toThrow(TaskTimedOut)
  expect(await (await curfew.schedule(says)).result()).toBe('done')
  await curfew.close()
})

test('a logger that lacks a method is refused', async () => {
  const { warn: _, ...lacking } = failing
  const logger = lacking as Logger
  const message = 'logger must have the methods debug, info, warn and error'
  await expect(Curfew.open({ store: ':memory:', logger })).rejects.toThrow(`Curfew.open: ${message}`)
  await expect(Curfew.work({ managers: 'http://127.0.0.1:1', logger })).rejects.toThrow(message)
})

test.runIf(process.platform === 'linux')('a full disk under stderr holds up nothing', async () => {
  const program = `
import { Curfew, task } from '${path.join(import.meta.dirname, 'curfew.ts')}'
const late = task({ name: 'late', timeout: 20, run: (_, { signal }) => new Promise((_, reject) => {
  signal.addEventListener('abort', () => reject(signal.reason))
}) })
const curfew = await Curfew.open({ store: ':memory:', tasks: [late] })
for (let i = 0; i < 2; i++) console.log(await (await curfew.schedule(late)).result().catch(({ code }) => code))
await curfew.close()
`
  const full = openSync('/dev/full', 'w')
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', full],
    env: { ...process.env, CURFEW_LOG: 'info' },
    timeout: 40_000,
    killSignal: 'SIGKILL',
  })
  closeSync(full)
  const exited = once(child, 'exit')
  expect(await text(child.stdout as NodeJS.ReadableStream)).toBe('task_timed_out\ntask_timed_out\n')
  expect(await exited).toEqual([0, null])
})
