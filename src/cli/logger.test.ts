import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { TestIo } from './fixtures/test-io.ts'
import { storeLogger } from './logger.ts'
import { main } from './program.ts'

test('on a terminal a line is for reading: time, level, message and what is known, and nothing a terminal acts on', () => {
  const io = new TestIo({ cwd: '/', terminal: true, env: { NO_COLOR: '1' } })
  const logger = storeLogger(io, 'warn')
  logger.info({}, 'not asked for')
  logger.warn({}, 'plain')
  const fields = { taskId: 't_1', error: new Error('two\nlines \x1b[31m'), left: [1, 2], none: null }
  logger.error(fields, 'it failed')
  expect(io.err.replaceAll(/^\d\d:\d\d:\d\d /gm, 'TIME ')).toBe(
    'TIME warn plain\nTIME error it failed (taskId: t_1, error: two lines \\x1b[31m, left: [ 1, 2 ])\n',
  )
})

test('a worker without a manager says so in words', async () => {
  const cwd = mkdtempSync(join(tmpdir(), 'curfew-logger-'))
  onTestFinished(() => rmSync(cwd, { recursive: true, force: true }))
  const url = new URL('../curfew.ts', import.meta.url).href
  const module = `import { task } from '${url}'\nexport const hello = task({ name: 'hello', run: () => 'hi' })\n`
  writeFileSync(join(cwd, 'tasks.ts'), module)
  const io = new TestIo({ cwd, terminal: true, env: { NO_COLOR: '1' } })
  const ended = main(['worker', 'tasks.ts', '--manager', 'http://127.0.0.1:1'], io)
  await io.printed(/^\d\d:\d\d:\d\d warn no manager; it is tried again \(.*127\.0\.0\.1:1.*\)$/m)
  io.send('SIGTERM')
  expect(await ended).toBe(0)
})
