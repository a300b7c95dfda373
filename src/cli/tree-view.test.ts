import { expect, test } from 'vitest'
import { Colours } from './colours.ts'
import { openDisplay } from './display.ts'
import { TestIo } from './fixtures/test-io.ts'
import { Changes, drawTree } from './tree-view.ts'
import type { WorkNode } from './work-tree.ts'

const NOW = 1_000_000

let last = 0
function node(label: string, status: WorkNode['status'], rest: Partial<WorkNode> = {}): WorkNode {
  return {
    ...{ id: `t_${last++}`, label, kind: 'task', status, parked: false, startedAt: null, endedAt: null },
    ...{ progress: null, limit: null, why: null, below: [], ...rest },
  }
}

function draw(root: WorkNode, size: { columns?: number; rows?: number; terminal?: boolean } = {}): string[] {
  const { columns = 80, rows = 20, terminal = false } = size
  const io = new TestIo({ cwd: '/', terminal })
  return drawTree(root, { now: NOW, columns, rows, colours: new Colours(io, io.stdout) })
}

const job = node('nightly', 'running', {
  startedAt: NOW - 12_000,
  limit: { kind: 'job', deadlineAt: NOW + 3_588_000 },
  below: [
    node('extract', 'completed', { startedAt: NOW - 12_000, endedAt: NOW - 9_700 }),
    node('load', 'running', {
      startedAt: NOW - 9_700,
      progress: { completed: 3, total: 4 },
      limit: { kind: 'execution', deadlineAt: NOW + 20_300 },
    }),
    node('report', 'pending', { why: 'waits for load' }),
    node('alarm', 'failed', { startedAt: NOW - 500, endedAt: NOW, why: 'nobody\nanswers' }),
  ],
})

test('the tree has status, elapsed, what is left and by which limit, progress and reasons', () => {
  expect(draw(job)).toEqual([
    'nightly running 12s, 59m48s left (job)',
    '├─ extract completed 2.3s',
    '├─ load running 9.7s, 21s left (execution), 75% (3/4)',
    '├─ report pending: waits for load',
    '└─ alarm failed 500ms: nobody answers',
  ])
})

test('lines are cut to the terminal, coloured after the cut', () => {
  expect(draw(job, { columns: 24 })).toEqual([
    'nightly running 12s, 59…',
    '├─ extract completed 2.…',
    '├─ load running 9.7s, 2…',
    '├─ report pending: wait…',
    '└─ alarm failed 500ms: …',
  ])
  expect(draw(job, { columns: 24, terminal: true })[4]).toBe('└─ alarm \x1b[31mfailed\x1b[39m 500ms: …')
  expect(draw(job, { columns: 12, terminal: true })[4]).toBe('└─ alarm fa…')
})

test('a tree that is too high is cut, and says by how much', () => {
  expect(draw(job, { rows: 3 })).toEqual([
    'nightly running 12s, 59m48s left (job)',
    '├─ extract completed 2.3s',
    '… 3 more',
  ])
})

test('many branches with nothing to say are one line; those that run or failed are all there', () => {
  const done = Array.from({ length: 40 }, () => node('read', 'completed', { startedAt: 0, endedAt: 5 }))
  const root = node('flow', 'running', { below: [...done, node('read', 'running'), node('read', 'failed')] })
  expect(draw(root)).toEqual([
    'flow running',
    '├─ read completed 40 of them',
    '├─ read running',
    '└─ read failed',
  ])
})

test('parked work says so and why', () => {
  expect(draw(node('ask', 'running', { parked: true, why: 'journal_mismatch' }))).toEqual([
    'ask running, parked: journal_mismatch',
  ])
})

test('what a name holds does not reach the terminal', () => {
  expect(draw(node('a\x1b[2J\x01b', 'failed', { why: 'x\x07' }))).toEqual(['a\\x1b[2J\\x01b failed: x\\x07'])
})

test('without a terminal every change is one line, with its place', () => {
  const io = new TestIo({ cwd: '/' })
  const colours = new Colours(io, io.stdout)
  const changes = new Changes()
  const child = node('load', 'pending')
  const root = node('nightly', 'running', { startedAt: NOW - 1_000, below: [child] })
  expect(changes.lines(root, NOW, colours)).toEqual(['nightly running 1s'])
  expect(changes.lines(root, NOW + 500, colours)).toEqual([])
  child.status = 'running'
  expect(changes.lines(root, NOW, colours)).toEqual(['nightly/load running'])
  child.status = 'failed'
  child.why = 'it broke'
  expect(changes.lines(root, NOW, colours)).toEqual(['nightly/load failed: it broke'])
  const all = node('nightly', 'completed', { below: [node('load', 'completed')] })
  expect(new Changes().lines(all, NOW, colours)).toEqual(['nightly/load completed', 'nightly completed'])
})

test('on a terminal it is redrawn in place, only when something changed', () => {
  const io = new TestIo({ cwd: '/', terminal: true, env: { NO_COLOR: '1' } })
  const display = openDisplay(io, io.stderr)
  const root = node('flow', 'pending', { below: [node('a', 'pending')] })
  display.show({ root, aheadMs: 0 })
  display.show({ root, aheadMs: 0 })
  expect(io.err).toBe('flow pending\x1b[K\n└─ a pending\x1b[K\n\x1b[J')
  io.err = ''
  root.below.pop()
  root.status = 'cancelled'
  display.show({ root, aheadMs: 0 })
  expect(io.err).toBe('\x1b[2A\rflow cancelled\x1b[K\n\x1b[J')
  io.err = ''
  display.note('Cancelling')
  expect(io.err).toBe('\x1b[1A\r\x1b[JCancelling\n')
})
