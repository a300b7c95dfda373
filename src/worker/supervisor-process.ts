/**
 * The program beside each worker process: it outlives its worker just long enough to end what that one left behind
 * and to tell (the obituary). The worker's death is the end of the channel. It is also looked for: a process that the
 * worker was starting holds the channel until its program runs, which may take long (a file system that does not
 * answer). Such a one has no mark before: what is known is ended at once, that one when the channel ends, and only then
 * can it be told that nothing is left.
 *
 * It lives in a session of its own, keeps nothing of its worker's open, does not heed SIGTERM, SIGINT or SIGHUP, and
 * exits as soon as there is nothing left to do.
 */
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import { sleep } from '../core/clock.ts'
import { SystemClock, SystemRandomness } from '../core/system-clock.ts'
import { isAlive, isStopped, ProcessTable } from './process-table.ts'
import type { TreeRoot } from './process-tree.ts'
import { killMarked, killTree } from './process-tree.ts'
import type {
  FromSupervisor,
  ObituaryReport,
  ObituaryWriter,
  RegisteredAttempt,
  ToSupervisor,
} from './supervisor-messages.ts'

/** From the channel's end until the worker must be gone. Longer, and it lives: it has another supervisor. */
const WORKER_EXIT_MS = 2_000
const OBITUARY_MS = 60_000
/** The orphan grace: the lease of an attempt is this, its own grace, and a margin. */
const STOPPED_MS = 5_000
const LOOK_EVERY_MS = 1_000
const OBITUARY_BACKOFF: Backoff = { initialMs: 50, factor: 2, maxMs: 2_000, jitter: 0.5 }

const clock = new SystemClock()
const randomness = new SystemRandomness()
const table = new ProcessTable(clock)
const registered = new Map<number, RegisteredAttempt>()
let watched: Extract<ToSupervisor, { type: 'watch' }> | null = null
let closing = false
/** Tokens of what had to be killed. */
const killed = new Set<string>()
/** Before the channel has ended. */
let endedEarly: Promise<unknown> = Promise.resolve()

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, ignore)

process.on('message', (message: ToSupervisor) => {
  if (message.type === 'watch') {
    watched = message
    const ready: FromSupervisor = { type: 'ready' }
    process.send?.(ready, ignore) // a worker that is gone by now is noticed by the end of the channel
  } else if (message.type === 'register') registered.set(message.attempt.pid, message.attempt)
  else if (message.type === 'release') for (const pid of message.pids) registered.delete(pid)
  else {
    closing = true
    process.disconnect()
  }
})

watchWorker()

process.on('disconnect', () => {
  endedEarly.then(finish).then(
    () => process.exit(0),
    () => process.exit(1), // nobody is left to tell
  )
})

async function finish(): Promise<void> {
  if (!watched || !(closing || (await workerIsGone(watched.worker)))) return
  const report = await endEverything(watched.nodeId)
  if (!closing && watched.obituary) await deliver(watched.obituary, report)
}

/** The channel ends a moment before its worker is seen to be gone. */
async function workerIsGone(worker: TreeRoot): Promise<boolean> {
  const until = clock.monotonic() + WORKER_EXIT_MS
  while (isAlive(worker.pid, worker.startTime)) {
    if (clock.monotonic() >= until) return false
    await sleep(clock, 2)
  }
  return true
}

async function endEverything(nodeId: string): Promise<ObituaryReport> {
  const marker = { nodeId }
  // Those that were started and not registered any more are known by their mark alone.
  const entries = await table.scan().catch(() => null) // then the registered ones are what is known
  const marked = entries?.filter(({ nodes }) => nodes.includes(nodeId)) ?? []
  const roots = new Map<string, RegisteredAttempt | null>()
  for (const { nodes, attempts } of marked) roots.set(attempts[nodes.indexOf(nodeId)] as string, null)
  for (const token of killed) roots.set(token, null)
  for (const attempt of registered.values()) roots.set(attempt.token, attempt)
  const report: ObituaryReport = { nodeId, ended: [], left: [] }
  // Its worker has seen every end itself.
  if (closing && entries && roots.size === 0) return report
  await Promise.all(
    Array.from(roots, async ([token, root]) => {
      const tools = { clock, table }
      const end = await (root
        ? killTree({ ...root, marker: { token } }, tools)
        : killMarked({ token }, tools))
      if (end.killed) killed.add(token)
      if (end.gone) report.ended.push({ token, receipt: killed.has(token) ? 'killed' : 'exited' })
      else report.left.push({ token, pids: end.left.map(({ pid }) => pid) })
    }),
  )
  await killMarked(marker, { clock, table })
  return report
}

async function deliver(
  obituary: { module: string; argument: unknown },
  report: ObituaryReport,
): Promise<void> {
  const until = clock.monotonic() + OBITUARY_MS
  clock.setTimer(OBITUARY_MS, () => process.exit(1))
  for (let tries = 0; ; tries++) {
    try {
      const { default: write } = (await import(obituary.module)) as { default: ObituaryWriter }
      return await write(obituary.argument, report)
    } catch (error) {
      if (clock.monotonic() >= until) throw error
      await sleep(clock, backoffMs(OBITUARY_BACKOFF, tries, randomness.next()))
    }
  }
}

/**
 * A worker that is stopped (SIGSTOP) cannot end its attempts when its lease runs out, and theirs go on without it:
 * they are ended here before anybody else may start them again. One that has been dead for a while left somebody who
 * holds the channel.
 */
function watchWorker(): void {
  let stoppedSince: number | null = null
  let wasDead = false
  const look = () => {
    const isDead = watched !== null && !isAlive(watched.worker.pid, watched.worker.startTime)
    if (watched && isDead && wasDead) {
      if (process.connected) endedEarly = endEverything(watched.nodeId)
      return
    }
    wasDead = isDead
    if (watched && registered.size > 0 && isStopped(watched.worker.pid)) {
      stoppedSince ??= clock.monotonic()
      if (clock.monotonic() - stoppedSince >= STOPPED_MS) {
        for (const attempt of registered.values()) {
          void killTree({ ...attempt, marker: { token: attempt.token } }, { clock, table })
        }
      }
    } else stoppedSince = null
    clock.setTimer(LOOK_EVERY_MS, look)
  }
  look()
}

function ignore(): void {
  // nothing to do
}
