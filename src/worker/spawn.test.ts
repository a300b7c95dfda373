import { execFileSync, spawn as spawnByNode } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { hangingProgram } from './fixtures/hanging-program.ts'
import { stateOf, temporaryFolder } from './fixtures/process-probe.ts'
import { PosixSpawn } from './posix-spawn.ts'
import type { SpawnedProcess, SpawnRequest } from './spawn.ts'
import { spawn, spawnWithNode } from './spawn.ts'

type Way = (request: SpawnRequest) => Promise<SpawnedProcess>

/** Both have to do the same. The first is not on every machine, and on every one of this house. */
const ways: [name: string, way: Way][] = [['Node', spawnWithNode]]
if (process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch)) ways.push(['posix_spawn', spawn])

let dir: string

beforeEach(() => {
  dir = temporaryFolder()
})

afterEach(() => rmSync(dir, { recursive: true, force: true }))

function request(argv: readonly string[], over: Partial<SpawnRequest> = {}): SpawnRequest {
  return { argv, env: { PATH: process.env.PATH }, cwd: dir, ...over }
}

const script = (text: string, over?: Partial<SpawnRequest>) => request(['/bin/sh', '-c', text], over)

interface Ended {
  exitCode: number | null
  signalCode: string | null
  stdout: string
  stderr: string
}

async function endOf(starting: ReturnType<Way>): Promise<Ended> {
  const started = await starting
  const printed = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    started[name].on('data', (chunk: Buffer) => {
      printed[name] += chunk.toString()
    })
  await new Promise<void>((resolve) => started.once('close', resolve))
  return { exitCode: started.exitCode, signalCode: started.signalCode, ...printed }
}

const openFiles = () => readdirSync('/proc/self/fd').length

function program(name: string, text: string): string {
  const file = join(dir, name)
  writeFileSync(file, text)
  chmodSync(file, 0o755)
  return file
}

test('on Linux commands do not wait for a fork', () => {
  expect(PosixSpawn.load() === null).toBe(ways.length === 1)
})

describe.each(ways)('a process that is started by %s', (_, start) => {
  const run = (one: SpawnRequest) => endOf(start(one))
  const refusal = async (one: SpawnRequest) => {
    const started = start(one).then(() => 'started')
    return started.catch(({ code }: NodeJS.ErrnoException) => code)
  }

  test('ends with its code or signal, and with what it printed', async () => {
    expect(await run(script('echo out; echo err >&2; exit 3'))).toEqual({
      ...{ exitCode: 3, signalCode: null, stdout: 'out\n', stderr: 'err\n' },
    })
    expect((await run(script('pwd', { cwd: '' }))).stdout).toBe(`${process.cwd()}\n`)
    expect(await run(script('kill -TERM $$'))).toMatchObject({ exitCode: null, signalCode: 'SIGTERM' })
    const { stdout } = await run(script('head -c 3000000 /dev/zero'))
    expect(stdout.length).toBe(3_000_000)
  })

  test('leads a session, reads nothing, ignores and holds back no signal, and has no file but three', async () => {
    const text =
      'echo $$; cut -d " " -f 6 /proc/self/stat; cat; pwd; grep -E "Sig(Blk|Ign)" /proc/self/status'
    const { stdout } = await run(script(text))
    const [pid, session, folder, blocked, ignored] = stdout.split('\n')
    expect([session, folder]).toEqual([pid, realpathSync(dir)])
    // Two signals belong to the C library.
    const signals = (line = '') => BigInt(`0x${line.split('\t')[1]}`) & ~0x1_8000_0000n
    expect([signals(blocked), signals(ignored)]).toEqual([0n, 0n])
    const files = (await run(script('ls /proc/$$/fd'))).stdout.split('\n').filter((fd) => Number(fd) > 2)
    const inherited = execFileSync('/bin/sh', ['-c', 'ls /proc/$$/fd'], { encoding: 'utf8' }).split('\n')
    expect(files.filter((fd) => !inherited.includes(fd))).toEqual([])
  })

  test('has its own variables and its arguments as they are', async () => {
    const odd = ['', ' ', '$HOME', 'ä€😀', '\'"\\', '\n', '--', '*', 'x'.repeat(100_000)]
    const { stdout } = await run(request(['printf', '%s|', ...odd]))
    expect(stdout).toBe(odd.map((one) => `${one}|`).join(''))
    const env = { PATH: process.env.PATH, EMPTY: '', NOT: undefined, ODD: 'a=b ä\n' }
    const variables = await run(request(['env', '-0'], { env }))
    expect(variables.stdout.split('\0').sort()).toEqual(
      ['', 'EMPTY=', 'ODD=a=b ä\n', `PATH=${process.env.PATH}`].sort(),
    )
  })

  test('is looked for in its own PATH, from its own folder', async () => {
    mkdirSync(join(dir, 'bin'))
    mkdirSync(join(dir, 'denied'))
    program('bin/mine', '#!/bin/sh\necho mine "$@"\n')
    writeFileSync(join(dir, 'denied/mine'), 'no program')
    program('here', '#!/bin/sh\necho here\n')
    const path = (PATH?: string) => ({ env: { PATH } })
    expect((await run(request(['mine', '1'], path(join(dir, 'bin'))))).stdout).toBe('mine 1\n')
    expect((await run(request(['mine'], path('no-such:denied:bin')))).stdout).toBe('mine\n')
    expect((await run(request(['here'], path('/bin:')))).stdout).toBe('here\n')
    expect((await run(request(['./here'], path('')))).stdout).toBe('here\n')
    expect((await run(request(['echo', 'found'], path()))).stdout).toBe('found\n')
    expect(await refusal(request(['mine'], path('/bin')))).toBe('ENOENT')
    expect(await refusal(request(['mine'], path('denied')))).toBe('EACCES')
  })

  test('is looked for where the links of PATH and of its folder lead', async () => {
    for (const folder of ['bin', 'real/bin', 'real/folder']) mkdirSync(join(dir, folder), { recursive: true })
    program('bin/mine', '#!/bin/sh\necho wrong\n')
    program('real/bin/mine', '#!/bin/sh\necho right\n')
    program('real/bin/other', '#!/bin/sh\necho other\n')
    const link = join(dir, 'link')
    symlinkSync(join(dir, 'real/folder'), link)
    expect((await run(request(['mine'], { env: { PATH: `${link}/../bin` } }))).stdout).toBe('right\n')
    const fromLink = { env: { PATH: '../bin' }, cwd: link }
    expect((await run(request(['mine'], fromLink))).stdout).toBe('right\n')
    expect((await run(request(['other'], fromLink))).stdout).toBe('other\n')
  })

  test('may be a script that does not say what runs it', async () => {
    const file = program('plain', 'echo "$0" "$@"\n')
    expect((await run(request([file, 'a b']))).stdout).toBe(`${file} a b\n`)
  })

  test('that cannot be started is told why, and leaves no file open', async () => {
    const file = program('file', '')
    chmodSync(file, 0o600)
    await run(script('true'))
    const before = openFiles()
    expect(await refusal(request(['no-such-program']))).toBe('ENOENT')
    expect(await refusal(request([join(dir, 'absent')]))).toBe('ENOENT')
    expect(await refusal(request([file]))).toBe('EACCES')
    expect(await refusal(script('true', { cwd: join(dir, 'absent') }))).toBe('ENOENT')
    expect(await refusal(script('true', { cwd: file }))).toBe('ENOTDIR')
    expect(await refusal(request(['true', 'x'.repeat(200_000)]))).toBe('E2BIG')
    expect(await refusal(request(['true', 'a\0b']))).toBe('ERR_INVALID_ARG_VALUE')
    expect(await refusal(request(['true', '\0'.repeat(100)]))).toBe('ERR_INVALID_ARG_VALUE')
    expect(await refusal(request(['tr\0ue']))).toBe('ERR_INVALID_ARG_VALUE')
    expect(await refusal(request(['true'], { env: { PATH: '/bin\0' } }))).toBe('ERR_INVALID_ARG_VALUE')
    expect(await refusal(script('true', { env: { A: 'a\0B=b' } }))).toBe('ERR_INVALID_ARG_VALUE')
    expect(await refusal(script('true', { cwd: `${dir}\0` }))).toBe('ERR_INVALID_ARG_VALUE')
    expect(openFiles()).toBe(before)
  })

  test('that finds no free file descriptor is told so, and one that finds them later starts', async () => {
    const url = new URL('./spawn.ts', import.meta.url).href
    const text = `import { closeSync, openSync, readdirSync } from 'node:fs'
      import { ${start.name} as start } from ${JSON.stringify(url)}
      const held = []
      const hold = () => { try { while (true) held.push(openSync('/dev/null')) } catch {} }
      const one = { argv: ['/bin/true'], env: {}, cwd: null }
      const run = async () => {
        const child = await start(one).catch(({ code }) => code)
        if (typeof child === 'string') return child
        child.stdout.resume(); child.stderr.resume()
        return new Promise((resolve) => child.once('close', () => resolve(child.exitCode)))
      }
      const codes = [await run()]
      const before = readdirSync('/proc/self/fd').length
      for (let free = 0; free < 4; free++) {
        hold()
        for (let i = 0; i < free; i++) closeSync(held.pop())
        codes.push(await run())
      }
      for (const fd of held) closeSync(fd)
      codes.push(await run())
      console.log(...codes, readdirSync('/proc/self/fd').length - before)`
    const line = 'ulimit -n 64; exec "$@"'
    const args = ['-c', line, 'sh', process.execPath, '--input-type=module', '-e', text]
    const printed = execFileSync('/bin/sh', args, { encoding: 'utf8', timeout: 20_000 })
    expect(printed).toBe('0 EMFILE EMFILE EMFILE EMFILE 0 0\n')
  })

  test('has ended when it has, whoever still holds its pipes', async () => {
    const started = await start(script('sleep 1000 & echo $!'))
    const events: string[] = []
    const closed = new Promise<void>((resolve) => started.once('close', resolve))
    const printed = new Promise<string>((resolve) => started.stdout.once('data', resolve))
    started.stderr.resume()
    await new Promise<void>((resolve) => started.once('exit', resolve))
    events.push('exit')
    void closed.then(() => events.push('close'))
    const sleeping = Number(await printed)
    expect([events, existsSync(`/proc/${sleeping}`)]).toEqual([['exit'], true])
    process.kill(sleeping, 'SIGKILL')
    started.stdout.resume()
    await closed
  })

  test('is one of many at once, and each end is its own', async () => {
    const codes = Array.from({ length: 100 }, (_, i) => i)
    const ends = await Promise.all(codes.map((code) => run(script(`exit ${code}`))))
    expect(ends.map(({ exitCode }) => exitCode)).toEqual(codes)
  })
})

describe.skipIf(ways.length === 1)('without a fork', () => {
  function ignoreEnds(): void {
    const listeners = process.listeners('SIGCHLD')
    expect(listeners.length).toBeGreaterThan(0)
    process.removeAllListeners('SIGCHLD')
    onTestFinished(() => {
      for (const listener of listeners) process.on('SIGCHLD', listener)
    })
  }

  test('an end whose signal came before its start was known is seen at once', async () => {
    ignoreEnds()
    const one = await spawn(script('exit 4'))
    while (stateOf(one.pid) !== 'Z');
    for (const _ of [1, 2]) await new Promise((resolve) => setImmediate(resolve))
    expect(one.exitCode).toBe(4)
  })

  test('an end whose signal was lost is seen all the same', async () => {
    ignoreEnds()
    expect(await endOf(spawn(script('exit 4')))).toMatchObject({ exitCode: 4 })
  })

  test('starts that hang hold up nobody but those that wait for their turn', async () => {
    const { file, asked, letGo } = hangingProgram('#!/bin/sh\nexit 6\n')
    const before = openFiles()
    const ended: string[] = []
    const runs = [1, 2, 3, 4].map(async (i) => {
      const { exitCode } = await endOf(spawn(request([file])))
      ended.push(`${i}: ${exitCode}`)
    })
    const other = endOf(spawn(script('exit 5'))).then(({ exitCode }) => ended.push(`other: ${exitCode}`))
    await asked
    expect(await readFile(import.meta.filename, 'utf8')).toContain('hold up nobody')
    expect(ended).toEqual([])
    letGo()
    await Promise.all([...runs, other])
    expect(ended.toSorted()).toEqual(['1: 6', '2: 6', '3: 6', '4: 6', 'other: 5'])
    expect(openFiles()).toBe(before - 1)
  })

  test('starts that hang do not keep a process from exiting', async () => {
    const { file, asked } = hangingProgram('#!/bin/sh\nexit 6\n')
    const url = new URL('./spawn.ts', import.meta.url).href
    const text = `import { spawn } from ${JSON.stringify(url)}
      process.on('SIGTERM', () => process.exit(3))
      for (let i = 0; i < 4; i++) void spawn({ argv: [${JSON.stringify(file)}], env: {}, cwd: null })`
    const args = ['--input-type=module', '-e', text]
    const child = spawnByNode(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] })
    const exited = once(child, 'exit')
    onTestFinished(() => void child.kill('SIGKILL'))
    await asked
    child.kill('SIGTERM')
    expect(await exited).toEqual([3, null])
  })

  test('arguments that no system takes are not kept in memory', async () => {
    const argv = ['true', ...Array.from({ length: 400 }, () => 'x'.repeat(100_000))]
    const before = process.memoryUsage().arrayBuffers
    await expect(spawn(request(argv))).rejects.toMatchObject({ code: 'E2BIG' })
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(20_000_000)
  })

  test('a listener that throws takes no end from anybody else', () => {
    const url = new URL('./spawn.ts', import.meta.url).href
    const text = `import { readFileSync, writeFileSync } from 'node:fs'
      import { spawn } from ${JSON.stringify(url)}
      const thrown = []
      process.on('uncaughtException', (error) => thrown.push(error.message))
      const script = (code) => 'until [ -e $GO ]; do sleep 0.01; done; exit ' + code
      const all = await Promise.all([0, 1, 2, 3].map((code) =>
        spawn({ argv: ['/bin/sh', '-c', script(code)], env: process.env, cwd: null })))
      const codes = all.map((one, i) => new Promise((resolve) => one.once('exit', () => {
        resolve(one.exitCode)
        if (i === 1) throw new Error('no')
      })))
      writeFileSync(process.env.GO, '')
      // One look finds them all.
      const isZombie = ({ pid }) => readFileSync('/proc/' + pid + '/stat', 'utf8').includes(') Z ')
      while (!all.every(isZombie));
      console.log(...(await Promise.all(codes)), ...thrown)`
    const args = ['--input-type=module', '-e', text]
    const env = { ...process.env, GO: join(dir, 'go') }
    const printed = execFileSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000, env })
    expect(printed).toBe('0 1 2 3 no\n')
  })

  test('a process stays as long as what it started runs, and no longer', () => {
    const url = new URL('./spawn.ts', import.meta.url).href
    const text = `import { spawn } from ${JSON.stringify(url)}
      const script = 'exec >&- 2>&-; sleep 0.2; exit 7'
      const one = await spawn({ argv: ['/bin/sh', '-c', script], env: {}, cwd: null })
      one.stdout.resume(); one.stderr.resume()
      one.once('exit', () => console.log(one.exitCode))`
    const args = ['--input-type=module', '-e', text]
    expect(execFileSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000 })).toBe('7\n')
  })

  test.each([
    ['a process whose permissions are limited', ['--permission', '--allow-fs-read=*', '--allow-addons'], ''],
    ['another version of what calls C', [], "createRequire(url)('koffi').version = '2.0.0'"],
  ])('%s leaves it to Node', (_, flags, first) => {
    const url = JSON.stringify(new URL('./spawn.ts', import.meta.url).href)
    const text = `import { createRequire } from 'node:module'
      const url = ${url}
      ${first}
      const { PosixSpawn } = await import(new URL('./posix-spawn.ts', url))
      console.log(PosixSpawn.load())`
    const args = [...flags, '--input-type=module', '-e', text]
    const printed = execFileSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000, stdio: 'pipe' })
    expect(printed).toBe('null\n')
  })

  test('a thread, where signals do not arrive, starts processes as Node does', () => {
    const url = new URL('./spawn.ts', import.meta.url).href
    const thread = `import(${JSON.stringify(url)}).then(async ({ spawn }) => {
      const one = await spawn({ argv: ['/bin/sh', '-c', 'exit 5'], env: {}, cwd: null })
      one.stdout.resume(); one.stderr.resume()
      one.once('exit', () => console.log(one.constructor.name, one.exitCode))
    })`
    const text = `import { Worker } from 'node:worker_threads'
      new Worker(${JSON.stringify(thread)}, { eval: true })`
    const args = ['--input-type=module', '-e', text]
    expect(execFileSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000 })).toBe(
      'ChildProcess 5\n',
    )
  })
})
