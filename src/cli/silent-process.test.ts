/** Commands while the process that has the store stands still. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { CliProcess } from './fixtures/cli-process.ts'
import { TestIo } from './fixtures/test-io.ts'
import { main } from './program.ts'

const MODULE = path.join(import.meta.dirname, 'fixtures/process-tasks.ts')

/** What takes seconds takes some hundredths. */
class HastyClock extends SystemClock {
  override setTimer(...[ms, ...rest]: Parameters<SystemClock['setTimer']>) {
    return super.setTimer(ms / 30, ...rest)
  }
}

test('a command says whose answer it waits for, and gives up; it is answered when that goes on', async () => {
  const cwd = mkdtempSync(path.join(tmpdir(), 'curfew-silent-'))
  const dev = new CliProcess(['dev', MODULE, '--json'], { cwd })
  try {
    await dev.ready()
    dev.kill('SIGSTOP')
    const hasty = Object.assign(new TestIo({ cwd }), { clock: new HastyClock() })
    expect(await main(['list'], hasty)).toBe(1)
    expect(hasty.err).toContain(`Process ${dev.pid} has the store, and does not answer.`)
    expect(hasty.err).toContain(`kill -CONT ${dev.pid} lets it go on`)
    const patient = new TestIo({ cwd })
    const ended = main(['list'], patient)
    await patient.printed(/does not answer/)
    dev.kill('SIGCONT')
    expect(await ended).toBe(0)
    expect(patient.err).toContain('There is none.')
  } finally {
    await dev.end()
    rmSync(cwd, { recursive: true, force: true })
  }
})
