import { execFileSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { endTree, processIn, temporaryFolder, until } from './fixtures/process-probe.ts'

test('a process that cannot be told from others later is ended with all it started, and leaves no file open', async () => {
  const dir = temporaryFolder()
  onTestFinished(() => {
    endTree(dir)
    rmSync(dir, { recursive: true, force: true })
  })
  const url = new URL('./command-start.ts', import.meta.url).href
  // No file descriptor is free when its start time is read; by then it has printed, and started another.
  const text = `import fs from 'node:fs'
    import { syncBuiltinESMExports } from 'node:module'
    const { startProcess } = await import(${JSON.stringify(url)})
    const { openSync } = fs
    fs.openSync = (path, ...rest) => {
      if (!/^\\/proc\\/\\d+\\/stat$/.test(path)) return openSync(path, ...rest)
      while (!fs.existsSync('started'));
      throw Object.assign(new Error('no'), { code: 'EMFILE' })
    }
    syncBuiltinESMExports()
    const script = 'echo words; sleep 1000 & echo $! > new; mv new started; wait'
    const start = () => startProcess({ argv: ['/bin/sh', '-c', script], env: process.env, cwd: null })
    const before = fs.readdirSync('/proc/self/fd').length
    const { code } = await start()
    console.log(code, fs.readdirSync('/proc/self/fd').length - before)`
  const args = ['--input-type=module', '-e', text]
  const options = { cwd: dir, encoding: 'utf8', timeout: 20_000 } as const
  expect(execFileSync(process.execPath, args, options)).toBe('no_resources 0\n')
  const { alive } = await processIn(dir, 'started')
  await until('its end', () => !alive())
})
