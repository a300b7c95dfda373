import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterEach, describe, expect, test } from 'vitest'
import { clock, isUntouched } from './fixtures/process-probe.ts'
import { markedEnvironment } from './marker.ts'
import type { ProcessEntry } from './process-table.ts'
import { ProcessTable, startTimeOf } from './process-table.ts'
import { killMarked, killTree, membersOf } from './process-tree.ts'

const token = 'a_ours'
const root = { pid: 500, startTime: 1_000 }

function entry(pid: number, over: Partial<ProcessEntry> = {}): ProcessEntry {
  return {
    pid,
    parent: 1,
    group: pid,
    session: pid,
    startTime: 1_500,
    zombie: false,
    stopped: false,
    headless: false,
    nodes: [],
    attempts: [],
    ...over,
  }
}

describe('ours is', () => {
  const leader = entry(500, { startTime: 1_000 })
  const pids = (...entries: ProcessEntry[]) => membersOf(entries, root, { token }).map(({ pid }) => pid)

  test('the leader, its group and its session', () => {
    expect(pids(leader, entry(501, { group: 500 }), entry(502, { session: 500 }), entry(503))).toEqual([
      500, 501, 502,
    ])
  })

  test('the group although its leader is gone', () => {
    expect(pids(entry(501, { group: 500 }))).toEqual([501])
  })

  test('no group whose number belongs to another process by now', () => {
    const stranger = entry(500, { startTime: 2_000 })
    expect(pids(stranger, entry(501, { group: 500, session: 500 }))).toEqual([])
  })

  test('what carries the mark, wherever it ran to, and all that descends from it', () => {
    const marked = entry(600, { attempts: ['a_outer', token] })
    expect(pids(entry(602, { parent: 601 }), entry(601, { parent: 600 }), marked)).toEqual([602, 601, 600])
    expect(pids(entry(600, { attempts: ['a_other'] }))).toEqual([])
    expect(pids(entry(600, { attempts: [`${token}/7`] }), entry(601, { attempts: [`${token}7`] }))).toEqual([
      600,
    ])
  })

  test('what was seen before, although it carries no mark and has lost its parents', () => {
    const seen = [{ pid: 600, startTime: 1_500 }]
    const found = (...entries: ProcessEntry[]) =>
      membersOf(entries, { ...root, seen }, { token }).map(({ pid }) => pid)
    expect(found(entry(600), entry(601, { parent: 600 }), entry(602))).toEqual([600, 601])
    expect(found(entry(600, { startTime: 1_501 }))).toEqual([])
  })

  test('of a group whose leader ended long ago only what somebody of it vouches for', () => {
    const seen = [{ pid: 501, startTime: 1_500 }]
    const found = (...entries: ProcessEntry[]) =>
      membersOf(entries, { ...root, seen, rootless: true }, { token }).map(({ pid }) => pid)
    const other = entry(502, { group: 500, session: 500 })
    expect(found(entry(501, { group: 500 }), other)).toEqual([501, 502])
    // Its number went to another, who left children too.
    expect(found(other)).toEqual([])
    expect(found(entry(501, { group: 501 }), other)).toEqual([501])
  })

  test('no zombie', () => {
    expect(pids({ ...leader, zombie: true })).toEqual([])
  })
})

describe('killing', () => {
  const tools = { clock, table: new ProcessTable(clock) }
  const started: { kill(signal: 'SIGKILL'): unknown }[] = []
  afterEach(() => {
    for (const child of started) child.kill('SIGKILL')
  })

  function sleeper(env: NodeJS.ProcessEnv = process.env) {
    const child = spawn('sleep', ['1000'], { env, detached: true, stdio: 'ignore' })
    started.push(child)
    return child
  }

  test('a tree whose pid is another process by now touches nothing', async () => {
    const stranger = sleeper()
    const pid = stranger.pid as number
    const startTime = (startTimeOf(pid) as number) - 1
    expect(await killTree({ pid, startTime, marker: { token } }, tools)).toMatchObject({
      gone: true,
      killed: false,
    })
    expect(await isUntouched(stranger)).toBe(true)
  })

  test('by a mark ends everything that carries it', async () => {
    const nodeId = `n_${process.pid}`
    const marked = [1, 2].map((n) => sleeper(markedEnvironment(process.env, nodeId, `a_${n}`)))
    const other = sleeper(markedEnvironment(process.env, `${nodeId}0`, 'a_1'))
    const exits = marked.map((child) => once(child, 'exit'))
    expect(await killMarked({ nodeId }, tools)).toMatchObject({ gone: true, killed: true, left: [] })
    await Promise.all(exits)
    expect(await isUntouched(other)).toBe(true)
    expect(await killMarked({ nodeId }, tools)).toMatchObject({ gone: true, killed: false })
  })
})
