/**
 * Starts processes with posix_spawn of the system's C library. Node's own way is fork, which copies the page tables of
 * this process: milliseconds of the main thread for each command, and the more the more memory is in use. This way
 * takes a tenth, however large this process is, and not of the main thread: a thread of the pool waits until the
 * program runs, which may take long (a file system that does not answer).
 *
 * For Linux, and for the main thread, where signals arrive. `spawn.ts` knows what to do elsewhere.
 */
import { EventEmitter } from 'node:events'
import { closeSync, existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Socket } from 'node:net'
import { constants } from 'node:os'
import { isAbsolute } from 'node:path'
import type { Readable } from 'node:stream'
import { getSystemErrorName, promisify } from 'node:util'
import { isMainThread } from 'node:worker_threads'
import type { Timer } from '../core/clock.ts'
import { SystemClock } from '../core/system-clock.ts'
import type { Killing } from './hanging-start.ts'
import { endStarts, killWriters } from './hanging-start.ts'
import type { SpawnedProcess, SpawnRequest } from './spawn.ts'

type Koffi = typeof import('koffi').default
type Native = (...args: unknown[]) => number

/** Where the numbers below hold: the C libraries of Linux agree on them. */
const MACHINES: readonly string[] = ['x64', 'arm64']
const O_CLOEXEC = 0o2000000
const WNOHANG = 1
const POSIX_SPAWN_SETSIGDEF = 0x04
const POSIX_SPAWN_SETSIGMASK = 0x08
const POSIX_SPAWN_SETSID = 0x80
/** More than any C library takes for them. */
const ATTRIBUTES_BYTES = 1024
const ACTIONS_BYTES = 256
const SIGNALS_BYTES = 128
const POINTER_BYTES = 8
/** Linux takes 6 MiB of arguments and variables at most. What is refused anyway need not be kept in memory. */
const MAX_STRINGS_BYTES = 8 * 1024 * 1024

/** As execvp has it. */
const DEFAULT_PATH = '/bin:/usr/bin'
/** Between two looks at all processes, should the signal of an end be lost. */
const LOOK_EVERY_MS = 1_000
/** The pool has four threads: starts that hang leave one for the files of everybody else. */
const STARTS_AT_ONCE = 3

const { ENOENT, ENOTDIR, EACCES, ENOEXEC, E2BIG, ECANCELED } = constants.errno

export class PosixSpawn {
  readonly #lib: ReturnType<typeof functionsOf>
  readonly #attributes = Buffer.allocUnsafeSlow(ATTRIBUTES_BYTES)
  /** Those that no start uses. */
  readonly #memories: StartMemory[]
  readonly #waiting = new Set<(memory: StartMemory) => void>()
  /** The pipes of those that have begun, to write to. */
  readonly #starting = new Set<number>()
  /** What waitpid answers with. */
  readonly #status = Buffer.allocUnsafeSlow(4)
  /** Ends come in real time. */
  readonly #clock = new SystemClock()
  readonly #running = new Map<number, PosixProcess>()
  /** It also keeps this process running as long as one of its children does. */
  #timer: Timer | null = null

  /** Null where it cannot be used. */
  static load(): PosixSpawn | null {
    if (process.platform !== 'linux' || !MACHINES.includes(process.arch) || !isMainThread) return null
    // Node knows what its permissions say of processes, and passes them on.
    if (process.permission) return null
    try {
      const koffi = createRequire(import.meta.url)('koffi') as Koffi
      // Left out as an optional dependency, what is found may be another one of whoever uses this.
      return koffi.version.startsWith('3.') ? new PosixSpawn(koffi) : null
    } catch {
      return null // not installed, not allowed to load, or a C library without what is needed
    }
  }

  private constructor(koffi: Koffi) {
    this.#lib = functionsOf(koffi)
    this.#memories = Array.from({ length: STARTS_AT_ONCE }, () => new StartMemory(koffi))
    const signals = Buffer.allocUnsafeSlow(SIGNALS_BYTES)
    this.#lib.initAttributes(this.#attributes)
    // As libuv does it: what this process ignores or holds back is no matter of its children.
    this.#lib.fillSignals(signals)
    this.#lib.setDefaultSignals(this.#attributes, signals)
    this.#lib.emptySignals(signals)
    this.#lib.setSignalMask(this.#attributes, signals)
    const flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID
    this.#lib.setFlags(this.#attributes, flags)
    // From now on, so that there is no moment in which an end is missed.
    process.on('SIGCHLD', this.#look)
    // An exit waits for the threads of the pool, and they for starts that hang.
    process.on('exit', () => endStarts([...this.#starting]))
  }

  /** Rejects with what Node's own would report. */
  async spawn(request: SpawnRequest): Promise<SpawnedProcess> {
    const memory = this.#memories.pop() ?? (await this.#turn(request.killed))
    try {
      return await this.#spawn(request, memory)
    } finally {
      const [next] = this.#waiting
      if (next) next(memory)
      else this.#memories.push(memory)
    }
  }

  #turn(killed: AbortSignal | undefined): Promise<StartMemory> {
    return new Promise((resolve, reject) => {
      const end = () => {
        this.#waiting.delete(begin)
        killed?.removeEventListener('abort', giveUp)
      }
      const begin = (memory: StartMemory) => {
        end()
        resolve(memory)
      }
      const giveUp = () => {
        end()
        reject(systemError('spawn', ECANCELED))
      }
      this.#waiting.add(begin)
      killed?.addEventListener('abort', giveUp)
    })
  }

  async #spawn(
    { argv, env, cwd: folder, killed, limitMs = null }: SpawnRequest,
    memory: StartMemory,
  ): Promise<SpawnedProcess> {
    if (killed?.aborted) throw systemError('spawn', ECANCELED)
    const { actions, answer } = memory
    const [program = ''] = argv
    const cwd = folder || null
    if ([program, env.PATH, cwd].some((text) => text?.includes('\0'))) throw invalid('a path')
    const variables = Object.entries(env).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name}=${value}`],
    )
    const pipes: Pipe[] = []
    const timers: Timer[] = []
    const kill = () => {
      const killing = killWriters(this.#clock, pipes[0]!.write)
      timers.push(killing)
      return killing
    }
    let isStarting = true
    let late: Killing | null = null
    this.#lib.initActions(actions)
    try {
      pipes.push(this.#pipe(answer))
      pipes.push(this.#pipe(answer)) // the first is known when this one fails
      this.#lib.addOpen(actions, 0, '/dev/null', 0, 0)
      for (const [i, { write }] of pipes.entries()) this.#lib.addDup(actions, write, i + 1)
      if (cwd !== null) this.#lib.addFolder(actions, cwd)
      this.#starting.add(pipes[0]!.write)
      killed?.addEventListener('abort', kill)
      if (limitMs !== null) {
        const end = () => {
          if (isStarting) late = kill()
        }
        // At the end of the turn: if this process stood still it may run, and be known in a moment.
        timers.push(this.#clock.setTimer(limitMs, () => this.#clock.endOfTurn(end)))
      }
      const start = (file: string, args: readonly string[]) => this.#start(file, args, variables, memory)
      const errno = await search(program, env.PATH, cwd, async (file) => {
        const failed = await start(file, argv)
        // As execvp does it: a script that does not say what runs it.
        return failed === ENOEXEC ? start('/bin/sh', ['/bin/sh', file, ...argv.slice(1)]) : failed
      })
      if (errno !== 0) throw systemError(`spawn ${program}`, errno)
      const [stdout, stderr] = pipes.map(({ read }) => read) as [Socket, Socket]
      // Not if it has run and ended meanwhile, and only the news of it comes late.
      const isLate = (late as Killing | null)?.hasKilled ?? false
      return this.#follow(new PosixProcess(answer.readInt32LE(0), stdout, stderr, isLate))
    } catch (error) {
      for (const { read } of pipes) read.destroy()
      throw error
    } finally {
      isStarting = false
      killed?.removeEventListener('abort', kill)
      for (const timer of timers) timer.cancel()
      this.#lib.destroyActions(actions)
      for (const { write } of pipes) {
        this.#starting.delete(write)
        closeSync(write)
      }
    }
  }

  #pipe(answer: Buffer): Pipe {
    if (this.#lib.pipe(answer, O_CLOEXEC) !== 0) throw systemError('pipe', this.#lib.errno())
    const fd = answer.readInt32LE(0)
    const write = answer.readInt32LE(4)
    try {
      return { read: new Socket({ fd, readable: true, writable: false }), write }
    } catch (error) {
      closeSync(fd)
      closeSync(write)
      throw error
    }
  }

  /** The number of its error, or 0. */
  #start(
    file: string,
    argv: readonly string[],
    variables: readonly string[],
    { answer, actions, strings }: StartMemory,
  ): Promise<number> {
    const [args, env] = strings.write(argv, variables)
    return this.#lib.spawn(answer, file, actions, this.#attributes, args, env)
  }

  #follow(child: PosixProcess): PosixProcess {
    this.#running.set(child.pid, child)
    if (!this.#timer) this.#lookLater()
    // The signal of its end may have come before it was known here.
    this.#clock.endOfTurn(this.#look)
    return child
  }

  #lookLater(): void {
    this.#timer = this.#clock.setTimer(LOOK_EVERY_MS, () => {
      this.#lookLater()
      this.#look()
    })
  }

  readonly #look = (): void => {
    try {
      // Not those that a listener starts meanwhile.
      for (const child of [...this.#running.values()]) {
        const found = this.#lib.wait(child.pid, this.#status, WNOHANG)
        if (found === 0) continue
        this.#running.delete(child.pid)
        // If a listener throws, the ends of the others are still there for the next look.
        // Not found: somebody else took its status. It has ended, and nobody knows how.
        child.end(found === child.pid ? this.#status.readInt32LE(0) : null)
      }
    } finally {
      if (this.#running.size === 0) {
        this.#timer?.cancel()
        this.#timer = null
      }
    }
  }
}

interface Pipe {
  read: Socket
  write: number
}

class PosixProcess extends EventEmitter<{ exit: []; close: [] }> implements SpawnedProcess {
  readonly pid: number
  readonly stdout: Readable
  readonly stderr: Readable
  readonly isLate: boolean
  exitCode: number | null = null
  signalCode: NodeJS.Signals | null = null
  /** Its pipes and itself. */
  #open = 3

  constructor(pid: number, stdout: Readable, stderr: Readable, isLate: boolean) {
    super()
    this.isLate = isLate
    this.pid = pid
    this.stdout = stdout
    this.stderr = stderr
    for (const pipe of [stdout, stderr]) pipe.once('close', () => this.#closed())
  }

  end(status: number | null): void {
    if (status !== null) {
      const signal = status & 0x7f
      if (signal === 0) this.exitCode = (status >> 8) & 0xff
      else this.signalCode = nameOf(signal)
    }
    this.emit('exit')
    this.#closed()
  }

  #closed(): void {
    if (--this.#open === 0) this.emit('close')
  }
}

function nameOf(signal: number): NodeJS.Signals {
  const known = Object.entries(constants.signals).find(([, number]) => number === signal)
  return (known?.[0] ?? `SIG${signal}`) as NodeJS.Signals
}

/** What one start writes and reads, used by one after the other. */
class StartMemory {
  readonly actions = Buffer.allocUnsafeSlow(ACTIONS_BYTES)
  /** Two numbers: what a function answers with. */
  readonly answer = Buffer.allocUnsafeSlow(8)
  readonly strings: StringLists

  constructor(koffi: Koffi) {
    this.strings = new StringLists(koffi)
  }
}

/** Lists of strings as C has them, in memory that is used again and again. */
class StringLists {
  readonly #koffi: Koffi
  #memory = Buffer.alloc(0)
  #address = 0n

  constructor(koffi: Koffi) {
    this.#koffi = koffi
  }

  /** Where each list begins. Valid until the next call. */
  write(...lists: (readonly string[])[]): bigint[] {
    const texts = lists.map((list) => list.map((text) => `${text}\0`).join(''))
    const count = lists.reduce((sum, list) => sum + list.length + 1, 0)
    this.#grow(count * POINTER_BYTES + texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0))
    let pointer = 0
    let end = count * POINTER_BYTES
    return texts.map((text, i) => {
      const begin = this.#address + BigInt(pointer)
      const textEnd = end + this.#memory.write(text, end)
      let found = 0
      for (; end < textEnd; found++) {
        this.#memory.writeBigUInt64LE(this.#address + BigInt(end), pointer)
        pointer += POINTER_BYTES
        end = this.#memory.indexOf(0, end) + 1
        if (found > lists[i]!.length) break
      }
      if (found !== lists[i]!.length) throw invalid('an argument or variable')
      this.#memory.writeBigUInt64LE(0n, pointer)
      pointer += POINTER_BYTES
      return begin
    })
  }

  #grow(bytes: number): void {
    if (this.#memory.length >= bytes) return
    if (bytes > MAX_STRINGS_BYTES) throw systemError('spawn', E2BIG)
    this.#memory = Buffer.allocUnsafeSlow(2 * bytes)
    this.#address = BigInt(this.#koffi.address(this.#memory))
  }
}

/** As execvp looks for a program, in the PATH that it will have. The number of the error, or 0. */
async function search(
  program: string,
  path: string | undefined,
  cwd: string | null,
  start: (file: string) => Promise<number>,
): Promise<number> {
  if (program.includes('/')) return start(program)
  let errno: number = ENOENT
  for (const folder of (path ?? DEFAULT_PATH).split(':')) {
    // Never made shorter: 'link/..' is not where the link is.
    const file = `${folder || '.'}/${program}`
    if (!existsSync(isAbsolute(file) || cwd === null ? file : `${cwd}/${file}`)) continue
    const failed = await start(file)
    if (failed === EACCES) errno = EACCES
    else if (failed !== ENOENT && failed !== ENOTDIR) return failed
  }
  return errno
}

function systemError(what: string, errno: number): Error {
  const code = getSystemErrorName(-errno)
  return Object.assign(new Error(`${what} ${code}`), { code })
}

function invalid(what: string): Error {
  return Object.assign(new Error(`${what} holds a NUL`), { code: 'ERR_INVALID_ARG_VALUE' })
}

function functionsOf(koffi: Koffi) {
  const lib = koffi.load(null)
  const native = (declaration: string): Native => lib.func(declaration)
  /** On a thread of the pool. What its arguments point at stays until it has answered. */
  const threaded = (declaration: string) =>
    promisify(lib.func(declaration).async) as (...args: unknown[]) => Promise<number>
  /** Its answer is the number of an error, or 0. */
  const checked = (declaration: string) => {
    const call = native(declaration)
    return (...args: unknown[]): void => {
      const errno = call(...args)
      if (errno !== 0) throw systemError('posix_spawn', errno)
    }
  }
  return {
    errno: () => koffi.errno(),
    pipe: native('int pipe2(void *fds, int flags)'),
    wait: native('int waitpid(int pid, void *status, int options)'),
    spawn: threaded(
      'int posix_spawn(void *pid, const char *file, void *actions, void *attributes, void *argv, void *env)',
    ),
    initActions: checked('int posix_spawn_file_actions_init(void *actions)'),
    destroyActions: native('int posix_spawn_file_actions_destroy(void *actions)'),
    addOpen: checked(
      'int posix_spawn_file_actions_addopen(void *actions, int fd, const char *path, int flags, int mode)',
    ),
    addDup: checked('int posix_spawn_file_actions_adddup2(void *actions, int fd, int as)'),
    addFolder: checked('int posix_spawn_file_actions_addchdir_np(void *actions, const char *path)'),
    initAttributes: checked('int posix_spawnattr_init(void *attributes)'),
    setFlags: checked('int posix_spawnattr_setflags(void *attributes, short flags)'),
    setSignalMask: checked('int posix_spawnattr_setsigmask(void *attributes, void *signals)'),
    setDefaultSignals: checked('int posix_spawnattr_setsigdefault(void *attributes, void *signals)'),
    fillSignals: native('int sigfillset(void *signals)'),
    emptySignals: native('int sigemptyset(void *signals)'),
  }
}
