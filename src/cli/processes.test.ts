import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { Curfew, createToken, tokenText } from '../curfew.ts'
import { CliProcess, isAlive, until } from './fixtures/cli-process.ts'
import * as tasks from './fixtures/process-tasks.ts'
import { curfew } from './fixtures/test-io.ts'

// Each test starts several processes, and the machine may be busy.
vi.setConfig({ testTimeout: 90_000 })

const MODULE = path.join(import.meta.dirname, 'fixtures/process-tasks.ts')
const LISTEN = ['--listen', '127.0.0.1:0']
const [isolated] = tasks.default

let cwd: string
let started: CliProcess[]

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-processes-'))
  started = []
})

afterEach(async () => {
  await endAll()
  rmSync(cwd, { recursive: true, force: true })
})

/** Workers before the managers that are told of it. */
async function endAll(): Promise<void> {
  for (const one of started.toReversed()) await one.end()
}

function start(args: string[], env: Record<string, string> = {}): CliProcess {
  const process = new CliProcess(args, { cwd, env })
  started.push(process)
  return process
}

async function startDev(...args: string[]) {
  const dev = start(['dev', MODULE, ...LISTEN, '--json', ...args])
  const { addresses } = await dev.ready()
  return { dev, url: addresses[0] as string }
}

async function startManager(...args: string[]) {
  const manager = start(['manager', '--store', 'm.db', ...LISTEN, '--json', ...args])
  const { addresses } = await manager.ready()
  return { manager, url: addresses[0] as string }
}

/** Over the wire, as any program does it. */
async function withClient<T>(url: string, work: (client: Curfew) => Promise<T>, token?: string): Promise<T> {
  const client = await Curfew.connect(url, token === undefined ? {} : { token })
  try {
    return await work(client as unknown as Curfew)
  } finally {
    await client.close()
  }
}

const sayHello = (url: string, token?: string) =>
  withClient(url, async (client) => (await client.schedule(tasks.hello, 'you')).result(), token)

const files = () => ({ started: path.join(cwd, 'started'), release: path.join(cwd, 'release') })
const attemptStarted = (attempt: number) => until(() => existsSync(path.join(cwd, `started-${attempt}`)))
const release = () => writeFileSync(path.join(cwd, 'release'), '')

describe('curfew dev', () => {
  test('says where it listens and what it knows, runs it, and ends with a signal', async () => {
    const dev = start(['dev', MODULE, ...LISTEN])
    await until(() => dev.stdout.includes('tasks:'), 'it is ready')
    const [, address] = /listens on (http:\/\/127\.0\.0\.1:\d+), unix:/.exec(dev.stdout) ?? []
    expect(dev.stdout).toMatch(
      /^curfew dev is ready: .*; store \.\/curfew\.db; node n_\w+\n {2}tasks: isolated, hello, stubborn, wait\n$/,
    )
    expect(await sayHello(address as string)).toBe('hello you')
    expect(dev.witnesses()).toHaveLength(1)
    dev.kill('SIGINT')
    expect(await dev.exited).toBe(0)
    expect(dev.stderr).toBe('SIGINT: draining for up to 30s; a second signal stops now\n')
    // Nothing stays but the store.
    expect(readdirSync(cwd)).toEqual(['curfew.db'])
  })

  test('goes on after kill -9, on the same store, with what it was running', async () => {
    const first = await startDev()
    const id = await withClient(first.url, async (client) => (await client.schedule(tasks.wait, files())).id)
    await attemptStarted(1)
    first.dev.kill('SIGKILL')
    expect(await first.dev.exited).toBe('SIGKILL')
    const second = await startDev()
    await attemptStarted(2)
    release()
    const result = await withClient(second.url, (client) => client.task(id).result())
    expect(result).toBe('released in attempt 2')
    second.dev.kill('SIGTERM')
    expect(await second.dev.exited).toBe(0)
  })
})

describe('curfew manager and curfew worker', () => {
  test('a worker waits for its manager, says so once, attaches and runs what comes', async () => {
    const address = `unix:${path.join(cwd, 'm.db.sock')}`
    const worker = start(['worker', MODULE, '--manager', address, '--json'])
    await until(() => worker.stderr !== '', 'it says that there is no manager')
    const { manager, url } = await startManager()
    expect(await worker.ready()).toMatchObject({ role: 'worker', addresses: [address], pid: worker.pid })
    expect(await sayHello(url)).toBe('hello you')
    expect([worker, manager].map((one) => one.witnesses().length)).toEqual([1, 1])
    expect(worker.stderr.trim().split('\n')).toHaveLength(1)
    expect(JSON.parse(worker.stderr)).toMatchObject({
      manager: address,
      msg: 'no manager; it is tried again',
    })
    worker.kill('SIGTERM')
    expect(await worker.exited).toBe(0)
    manager.kill('SIGTERM')
    expect(await manager.exited).toBe(0)
  })

  test('a worker without a manager ends with the first signal', async () => {
    const worker = start(['worker', MODULE, '--manager', 'http://127.0.0.1:1'])
    await until(() => worker.stderr.includes('no manager'))
    worker.kill('SIGTERM')
    expect(await worker.exited).toBe(0)
    expect(worker.stdout).toBe('')
  })

  test('the first signal lets what runs end, within the time to drain', async () => {
    const { url } = await startManager()
    const worker = start(['worker', MODULE, '--manager', url, '--json'])
    await worker.ready()
    await withClient(url, async (client) => {
      const running = await client.schedule(tasks.wait, files())
      await attemptStarted(1)
      worker.kill('SIGTERM')
      await until(() => worker.stderr.includes('draining'))
      // It takes nothing new.
      const next = await client.schedule(tasks.hello, 'later')
      release()
      expect(await running.result()).toBe('released in attempt 1')
      expect(await worker.exited).toBe(0)
      expect(await client.task(next.id).status()).toBe('pending')
    })
  })

  test('what has not ended by then is stopped and goes back to its queue', async () => {
    const { url } = await startManager()
    const worker = start(['worker', MODULE, '--manager', url, '--drain', '100ms', '--json'])
    await worker.ready()
    await withClient(url, async (client) => {
      const { id } = await client.schedule(tasks.wait, files())
      await attemptStarted(1)
      worker.kill('SIGTERM')
      expect(await worker.exited).toBe(0)
      const again = start(['worker', MODULE, '--manager', url, '--json'])
      await attemptStarted(2)
      release()
      expect(await client.task(id).result()).toBe('released in attempt 2')
      expect(again.alive).toBe(true)
    })
  })

  test('a manager that is told to go sends its workers to the next one', async () => {
    const store = await createDatabase(inject('postgresUrl'))
    try {
      const managers = await Promise.all([0, 1].map(() => startManager('--store', store)))
      const [first, second] = managers as [(typeof managers)[0], (typeof managers)[0]]
      expect(first.manager.stdout).not.toContain(store) // it holds a password
      const urls = managers.flatMap(({ url }) => ['--manager', url])
      const worker = start(['worker', MODULE, ...urls, '--json', '--log', 'info'])
      await worker.ready()
      await withClient(second.url, async (client) => {
        const running = await client.schedule(tasks.wait, files())
        await attemptStarted(1)
        first.manager.kill('SIGTERM')
        expect(await first.manager.exited).toBe(0)
        await until(() => worker.stderr.split('"attached"').length > 2, 'it is attached to the other')
        release()
        expect(await running.result()).toBe('released in attempt 1')
        expect(await sayHello(second.url)).toBe('hello you')
      })
    } finally {
      await endAll()
      await dropDatabase(store)
    }
  })

  test('a handler that ignores its signal does not keep the process', async () => {
    const { dev, url } = await startDev('--drain', '100ms', '--log', 'silent')
    await withClient(url, async (client) => client.schedule(tasks.stubborn, files()))
    await attemptStarted(1)
    dev.kill('SIGTERM')
    expect(await dev.exited).toBe(0)
  })

  test('the second signal ends it now, and the witness what it left', async () => {
    const { dev, url } = await startDev('--log', 'silent')
    await withClient(url, (client) => client.schedule(isolated as never, files() as never))
    await attemptStarted(1)
    const pid = Number(readFileSync(path.join(cwd, 'started-1'), 'utf8'))
    expect(pid).not.toBe(dev.pid)
    dev.kill('SIGTERM')
    await until(() => dev.stderr.includes('draining'))
    dev.kill('SIGINT')
    expect(await dev.exited).toBe(130)
    expect(dev.stderr).toContain('SIGINT again: stopping now')
    await until(() => !isAlive(pid), 'the process of the task is gone')
  })
})

describe('who may call', () => {
  test('an address of every network needs tokens: nothing is opened without', async () => {
    const manager = start(['manager', '--store', 'm.db', '--listen', '0.0.0.0:0'])
    expect(await manager.exited).toBe(2)
    expect(manager.stderr).toMatch(/^error: will not listen on 0\.0\.0\.0:0 without tokens/)
    expect(readdirSync(cwd)).toEqual([])
  })

  test('with tokens a worker of that role is taken, and anybody else is not', async () => {
    const made = (['client', 'worker'] as const).map((role) => {
      const { token, entry } = createToken(role)
      return { token, line: tokenText(entry) }
    })
    const [mine, its] = made as [(typeof made)[0], (typeof made)[0]]
    writeFileSync(path.join(cwd, 'tokens'), `# workers\n${its.line}\n`)
    const args = ['--tokens', mine.line, '--tokens-file', 'tokens', '--log', 'silent']
    const { url } = await startManager(...args)
    const worker = start(['worker', MODULE, '--manager', url, '--json'], { CURFEW_TOKEN: its.token })
    await worker.ready()
    expect(await sayHello(url, mine.token)).toBe('hello you')
    await expect(sayHello(url)).rejects.toMatchObject({ code: 'unauthenticated' })
    await expect(sayHello(url, its.token)).rejects.toMatchObject({ code: 'permission_denied' })
    const stranger = start(['worker', MODULE, '--manager', url, '--log', 'silent'], {
      CURFEW_TOKEN: mine.token,
    })
    expect(await stranger.exited).toBe(1)
    expect(stranger.stdout).toBe('')
    expect(stranger.stderr).toMatch(/^error: /)
  })
})

describe('what cannot start says why', () => {
  test('a port that is taken: the store is let go of again', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const { port } = server.address() as { port: number }
    try {
      const dev = start(['dev', MODULE, '--listen', `127.0.0.1:${port}`])
      expect(await dev.exited).toBe(1)
      expect(dev.stdout).toBe('')
      expect(dev.stderr).toContain(`127.0.0.1:${port}`)
    } finally {
      await new Promise((resolve) => server.close(resolve))
    }
    const { dev } = await startDev()
    expect(dev.alive).toBe(true)
  })

  test('a store that is in use names who has it', async () => {
    const { manager } = await startManager()
    const second = start(['manager', '--store', 'm.db', ...LISTEN, '--log', 'silent'])
    expect(await second.exited).toBe(1)
    expect(second.stderr).toContain(String(manager.pid))
    expect(manager.alive).toBe(true)
    // It has not taken anything of the first.
    expect(existsSync(path.join(cwd, 'm.db.sock'))).toBe(true)
  })

  test.each([
    ['a module that is not there', ['dev', 'gone.ts'], 2, 'there is no module gone.ts'],
    ['no module', ['worker', '--manager', 'http://a'], 2, 'curfew worker: modules are missing'],
    ['no manager', ['worker', MODULE], 2, 'curfew worker: managers are missing'],
    ['no store', ['manager'], 2, 'curfew manager: store is missing'],
    ['a flag of another command', ['manager', '--concurrency', '3'], 2, "unknown option '--concurrency'"],
  ])('%s', async (_, args, code, expected) => {
    const told = await curfew(args, { cwd })
    expect(told.code).toBe(code)
    expect(told.err).toContain(expected)
    expect(readdirSync(cwd)).toEqual([])
  })

  test('a broken configuration file', async () => {
    writeFileSync(path.join(cwd, 'curfew.config.ts'), 'export default { store: }')
    const dev = start(['dev'])
    expect(await dev.exited).toBe(2)
    expect(dev.stderr).toContain('curfew.config.ts cannot be loaded')
  })
})

test('a configuration file in TypeScript says all of it', async () => {
  const config = `const port: number = 0
    export default { store: 'c.db', listen: \`127.0.0.1:\${port}\`, modules: ['${MODULE}'], drain: 250, log: 'info' }`
  writeFileSync(path.join(cwd, 'curfew.config.ts'), config)
  const dev = start(['dev', '--json'])
  const { addresses } = await dev.ready()
  expect(await sayHello(addresses[0] as string)).toBe('hello you')
  dev.kill('SIGTERM')
  expect(await dev.exited).toBe(0)
  expect(dev.stderr).toContain('draining for up to 250ms')
  expect(existsSync(path.join(cwd, 'c.db'))).toBe(true)
})
