/**
 * Commands that stay: until a signal, or until what they run ends by itself. The first signal drains: nothing new is
 * taken, what runs may end within `drainMs`, then goes down the ladder. The second means now: the witness ends what
 * is left.
 */
import type { Duration } from '../core/duration.ts'
import { formatDuration } from '../core/duration.ts'
import { EXIT } from './exit-code.ts'
import type { Io } from './io.ts'
import type { Definitions } from './load-modules.ts'
import type { Flags } from './options.ts'
import { printJsonLine, printLines } from './print.ts'

export interface Staying {
  /** Rejects when it cannot go on. */
  readonly failed: Promise<never>
  close(options?: { drain?: boolean | Duration }): Promise<void>
}

export async function stay(io: Io, drainMs: number, start: () => Promise<Staying>): Promise<void> {
  const first = Promise.withResolvers<string>()
  let told = false
  // From the beginning: a signal while it starts is not lost.
  const ignore = io.onSignal((signal) => {
    if (told) {
      io.stderr.write(`${signal} again: stopping now\n`)
      return io.exitNow(EXIT.interrupted)
    }
    told = true
    first.resolve(signal)
  })
  try {
    const running = await start()
    try {
      const signal = await Promise.race([first.promise, running.failed])
      const what = drainMs === 0 ? 'stopping' : `draining for up to ${formatDuration(drainMs)}`
      io.stderr.write(`${signal}: ${what}; a second signal stops now\n`)
    } catch (error) {
      await running.close()
      throw error
    }
    await running.close({ drain: drainMs === 0 ? false : drainMs })
  } finally {
    ignore()
  }
}

export interface Ready {
  role: 'manager' | 'worker' | 'dev'
  /** Where it listens, or what it is attached to. */
  addresses: readonly string[]
  store?: string
  nodeId: string
  known?: Pick<Definitions, 'tasks' | 'agents' | 'workflows'>
}

/** One line when it is ready, for whoever waits for it; then what it knows. */
export function tellReady(
  io: Io,
  { json }: Flags,
  { role, addresses, store, nodeId, known = { tasks: [], agents: [], workflows: [] } }: Ready,
): void {
  const names = (['tasks', 'agents', 'workflows'] as const).map(
    (kind) => [kind, known[kind].map(({ name }) => name)] as const,
  )
  if (json) {
    const { pid } = process
    printJsonLine(io, { event: 'ready', role, addresses, store, nodeId, pid, ...Object.fromEntries(names) })
    return
  }
  const does = role === 'worker' ? 'attached to' : 'listens on'
  const where = addresses.length === 0 ? 'listens to nobody' : `${does} ${addresses.join(', ')}`
  const parts = [where, ...(store === undefined ? [] : [`store ${store}`]), `node ${nodeId}`]
  const lines = names.filter(([, all]) => all.length > 0).map(([kind, all]) => `  ${kind}: ${all.join(', ')}`)
  printLines(io, [`curfew ${role} is ready: ${parts.join('; ')}`, ...lines])
}
