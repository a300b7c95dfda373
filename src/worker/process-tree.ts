/**
 * The forced end of everything an attempt started: its group, and whatever left the group (own session, double fork,
 * stopped), verified gone.
 *
 * Ours is what stands in the group or session we made, what carries our mark in its environment, and every descendant
 * of those. Groups other than the one we made are never signalled; what left ours is signalled one by one, each pid
 * checked against its start time. What both cleared its environment and lost all its parents is not found.
 */
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { assert } from '../core/errors.ts'
import type { Marker } from './marker.ts'
import { hasMark } from './marker.ts'
import type { ProcessEntry, ProcessTable } from './process-table.ts'
import { exists, startTimeOf } from './process-table.ts'

/** A process started as the leader of its own session. */
export interface TreeRoot {
  pid: number
  /** Null where there is no /proc. */
  startTime: number | null
}

export interface TreeEnd {
  /** Nothing is left, and it was looked. */
  gone: boolean
  /** Something had to be killed. */
  killed: boolean
  left: ProcessEntry[]
  /** Why it could not be looked. */
  error: Error | null
}

interface Tools {
  clock: Clock
  table: ProcessTable
}

/** Killing takes milliseconds; what survives this long waits for a device or belongs to another user. */
const BOUND_MS = 2_000
const LONGEST_PAUSE_MS = 50

/** What is known of a tree: its root, and how what left its group is found. */
export interface Tree extends TreeRoot {
  marker: Marker
  /** Members seen before: ours also when they have lost their parents since. */
  seen?: readonly TreeRoot[]
  /**
   * The root ended long ago, so that its number may be another group's by now: the group is ours only while somebody
   * of it that was seen is in it.
   */
  rootless?: boolean
}

/** Never rejects. */
export function killTree(tree: Tree, tools: Tools): Promise<TreeEnd> {
  assert(tree.pid > 1, `${tree.pid} is no process of ours`)
  return killUntilGone(tree, tree.marker, tools)
}

/** Everything that carries the mark, where nothing better is known. Never rejects. */
export function killMarked(marker: Marker, tools: Tools): Promise<TreeEnd> {
  return killUntilGone(null, marker, tools)
}

async function killUntilGone(tree: Tree | null, marker: Marker, { clock, table }: Tools): Promise<TreeEnd> {
  const end: TreeEnd = { gone: false, killed: false, left: [], error: null }
  const until = clock.monotonic() + BOUND_MS
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      // Looked for before anything is signalled: a descendant is known by its parent only while that one lives.
      const entries = await table.scan()
      end.left = entries === null ? [] : membersOf(entries, tree, marker)
      end.gone = entries === null ? tree === null || !exists(-tree.pid) : end.left.length === 0
      end.error = null
      if (end.gone) return end
      end.killed = true
      if (tree && (entries === null || isSame(tree))) signal(-tree.pid, 'SIGKILL')
      for (const entry of end.left) if (isSame(entry)) signal(entry.pid, 'SIGKILL')
    } catch (error) {
      end.error = error as Error
    }
    if (clock.monotonic() >= until) return end
    await sleep(clock, pauseMs)
  }
}

/** What of the scanned processes is ours and runs. */
export function membersOf(
  entries: ProcessEntry[],
  root: Omit<Tree, 'marker'> | null,
  marker: Marker,
): ProcessEntry[] {
  const ours = new Set<number>()
  const seen = new Map(root?.seen?.map(({ pid, startTime }) => [pid, startTime]))
  for (const entry of entries) {
    if (hasMark(entry, marker) || seen.get(entry.pid) === entry.startTime) ours.add(entry.pid)
  }
  // A pid is not given out while a group or session has its number. So if nobody has it, or the one we started, the
  // group is ours; if another has it, ours is empty.
  const holder = root && entries.find(({ pid }) => pid === root.pid)
  const since = root?.startTime ?? null
  const inGroup = ({ group, session }: ProcessEntry) => group === root?.pid || session === root?.pid
  const isHeld = () => entries.some((entry) => inGroup(entry) && ours.has(entry.pid))
  const groupIsOurs = since !== null && (holder ? holder.startTime === since : !root?.rootless || isHeld())
  if (groupIsOurs) {
    for (const entry of entries) if (inGroup(entry) && entry.startTime >= since) ours.add(entry.pid)
  }
  for (let before = -1; before !== ours.size; ) {
    before = ours.size
    for (const { pid, parent } of entries) if (ours.has(parent)) ours.add(pid)
  }
  return entries.filter(({ pid, zombie }) => ours.has(pid) && !zombie && pid !== process.pid)
}

function isSame({ pid, startTime }: TreeRoot): boolean {
  return startTime !== null && startTimeOf(pid) === startTime
}

/** To the group of a root whose end this process has not heard of: until then its number is its own. */
export function signalGroup(root: TreeRoot, name: NodeJS.Signals): void {
  if (!isAnother(root)) signal(-root.pid, name)
}

function isAnother(root: TreeRoot): boolean {
  try {
    return root.startTime !== null && !isSame(root)
  } catch {
    return false // no file descriptor to look with
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Gone, or another user's: the next look tells which.
    if (code !== 'ESRCH' && code !== 'EPERM') throw error
  }
}
