/**
 * A folder for one run, and a marker in the environment of every process that the run starts. Nothing of either
 * outlives this process, however it ends: a watcher in a session of its own holds the other end of a pipe, and its
 * end (exit, signal, kill -9) makes it kill what carries the marker, unmount what is mounted in the folder and
 * remove it.
 */
import type { ChildProcess } from 'node:child_process'
import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

const VARIABLE = 'FAULTS_RUN'

// $1 is the folder, $2 the marker. Several rounds: what is killed may have been starting something.
const watcherScript = `
cat > /dev/null
for round in 1 2 3; do
  for environ in /proc/[0-9]*/environ; do
    if grep -qaF "$2" "$environ" 2> /dev/null; then
      pid=\${environ#/proc/}
      kill -KILL "\${pid%/environ}" 2> /dev/null
    fi
  done
  sleep 0.1
done
for mounted in "$1"/mount-*; do
  if [ -d "$mounted" ]; then umount "$mounted" 2> /dev/null || umount -l "$mounted" 2> /dev/null; fi
done
rm -rf "$1"
`

export class Scratch {
  readonly folder: string
  readonly #marker = randomBytes(8).toString('hex')
  readonly #watcher: ChildProcess

  constructor() {
    this.folder = mkdtempSync(path.join(tmpdir(), 'curfew-faults-'))
    chmodSync(this.folder, 0o755)
    this.#watcher = spawn('sh', ['-c', watcherScript, 'sh', this.folder, `${VARIABLE}=${this.#marker}`], {
      cwd: '/',
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    this.#watcher.unref()
  }

  path(name: string): string {
    return path.join(this.folder, name)
  }

  /** For the processes of this run. */
  environment(): NodeJS.ProcessEnv {
    return { ...process.env, [VARIABLE]: this.#marker }
  }

  /** The pids that carry the marker and run. */
  processes(): number[] {
    return readdirSync('/proc')
      .map(Number)
      .filter(
        (pid) =>
          pid > 0 && isRunning(pid) && readProc(pid, 'environ').includes(`${VARIABLE}=${this.#marker}`),
      )
  }

  /** An empty memory file system of this size. Needs root. */
  mountMemory(bytes: number): string {
    const folder = this.path(`mount-${randomBytes(4).toString('hex')}`)
    mkdirSync(folder)
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'curfew-faults', folder])
    return folder
  }

  async remove(): Promise<void> {
    if (this.#watcher.exitCode !== null || this.#watcher.signalCode !== null) return
    const exited = once(this.#watcher, 'exit')
    this.#watcher.ref()
    this.#watcher.stdin?.end()
    await exited
  }
}

function isRunning(pid: number): boolean {
  const stat = readProc(pid, 'stat')
  const state = stat.slice(stat.lastIndexOf(')') + 2)[0]
  return state !== undefined && state !== 'Z' && state !== 'X'
}

function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1')
  } catch {
    return '' // it is gone
  }
}
