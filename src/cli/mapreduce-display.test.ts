import { expect, test } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.ts'
import {
  commandOf,
  countsOf,
  endedItem,
  phaseOf,
  runningItem,
  START,
  snapshotOf,
} from './fixtures/mapreduce-snapshots.ts'
import { screenOf } from './fixtures/screen.ts'
import { TestIo } from './fixtures/test-io.ts'
import { openMapreduceDisplay } from './mapreduce-display.ts'

function open(options: { terminal: boolean; columns?: number; rows?: number; env?: Record<string, string> }) {
  const io = new TestIo({ cwd: '/', columns: 80, ...options })
  const clock = new VirtualClock(START)
  Object.defineProperty(io, 'clock', { value: clock })
  return { io, clock, display: openMapreduceDisplay(io, io.stderr) }
}

const running = (n: number) => snapshotOf({ counts: countsOf({ running: n }), phases: [] })

/** Writes of the display since the last call. */
function writesOf(io: TestIo): () => number {
  let count = 0
  const { stderr } = io
  const write = stderr.write.bind(stderr)
  stderr.write = (text) => {
    count++
    write(text)
  }
  return () => {
    const since = count
    count = 0
    return since
  }
}

test('a terminal shows the last snapshot, repainted in place', async () => {
  const { io, clock, display } = open({ terminal: true })
  display.show(running(1))
  await clock.advance('1s')
  display.show(snapshotOf({ running: [runningItem(1)], counts: countsOf({ running: 1 }) }))
  await clock.advance('1s')
  display.show(running(3))
  await clock.advance('1s')
  expect(screenOf(io.err, 80)).toEqual(['pipeline 3s (j_1)', '3 items: 3 running', ''])
})

test('it is painted at most ten times a second, and the last change is never missed', async () => {
  const { io, clock, display } = open({ terminal: true })
  const writes = writesOf(io)
  for (let n = 1; n <= 1_000; n++) {
    display.show(running(n))
    await clock.advance('1ms')
  }
  expect(writes()).toBeLessThanOrEqual(11)
  await clock.advance('100ms')
  expect(screenOf(io.err, 80)[1]).toBe('1000 items: 1000 running')
})

test('time alone moves what is shown; nothing is written when nothing changed', async () => {
  const { io, clock, display } = open({ terminal: true })
  display.show(running(1))
  await clock.advance('5s')
  expect(screenOf(io.err, 80)[0]).toBe('pipeline 5s (j_1)')
  const writes = writesOf(io)
  await clock.advance('499ms')
  expect(writes()).toBe(0)
})

test('what others print stays: the display clears itself first and comes back below', async () => {
  const { io, clock, display } = open({ terminal: true })
  display.show(running(2))
  display.note('a note')
  await clock.advance('200ms')
  display.clear()
  io.stderr.write('printed by another\n')
  await clock.advance('1s')
  const notes = ['a note', 'printed by another']
  expect(screenOf(io.err, 80)).toEqual([...notes, 'pipeline 1s (j_1)', '2 items: 2 running', ''])
  display.close()
  display.show(running(5))
  await clock.advance('1s')
  expect(screenOf(io.err, 80)).toEqual([...notes, ''])
})

test.each([20, 30, 80])('a terminal of %i columns keeps its rows in place', async (columns) => {
  const { io, clock, display } = open({ terminal: true, columns, rows: 12 })
  io.stderr.write('before\n')
  for (let n = 1; n < 30; n++) {
    const items = Array.from({ length: n }, (_, i) =>
      runningItem(i, { name: 'n'.repeat(n * 7), command: commandOf(60_000) }),
    )
    display.show(snapshotOf({ running: items, counts: countsOf({ running: n, waiting: 30 - n }) }))
    await clock.advance('150ms')
  }
  const screen = screenOf(io.err, columns)
  expect(screen[0]).toBe('before')
  expect(screen.length).toBeLessThanOrEqual(12)
  expect(screen.filter((row) => row.startsWith('pipeline'))).toHaveLength(1)
})

test('letters that a terminal draws wider than they count take no second row', async () => {
  const { io, clock, display } = open({ terminal: true })
  io.stderr.write('before\n')
  for (let n = 1; n < 5; n++) {
    const snapshot = snapshotOf({ name: 'क्ष'.repeat(60), phases: [], counts: countsOf({ running: n }) })
    display.show(snapshot)
    await clock.advance('1s')
  }
  const screen = screenOf(io.err, 80)
  expect([screen[0], ...screen.slice(2)]).toEqual(['before', '4 items: 4 running', ''])
})

test('without a terminal every change is a line', async () => {
  const { io, clock, display } = open({ terminal: false })
  const step = { index: 0, of: 1, text: 'npm ci', startedAt: START, limitMs: null }
  const waiting = countsOf({ waiting: 2 })
  display.show(
    snapshotOf({
      phases: [phaseOf('setup', 'running', { step }), phaseOf('map', 'waiting')],
      counts: waiting,
    }),
  )
  await clock.advance('2s')
  const phases = [phaseOf('setup', 'done'), phaseOf('map', 'running')]
  display.show(
    snapshotOf({ phases, counts: countsOf({ running: 2 }), running: [runningItem(1), runningItem(2)] }),
  )
  display.show(
    snapshotOf({ phases, counts: countsOf({ running: 2 }), running: [runningItem(1), runningItem(2)] }),
  )
  await clock.advance('1s')
  const recent = [
    endedItem(1),
    endedItem(2, { status: 'timed_out', message: 'Agent item-2 timed out', ms: 3_000 }),
  ]
  display.show(
    snapshotOf({
      phases,
      recent: recent.slice(0, 1),
      counts: countsOf({ running: 1, successful: 1 }),
      running: [runningItem(2, { attempt: 2 })],
    }),
  )
  display.note('a note')
  display.show(
    snapshotOf({
      phases: [phaseOf('setup', 'done'), phaseOf('map', 'done', { endedAt: START + 3_000 })],
      recent,
      counts: countsOf({ successful: 1, timedOut: 1 }),
    }),
  )
  display.close()
  expect(io.err.split('\n')).toEqual([
    '[0s] pipeline begins (j_1)',
    '[0s] setup begins',
    '[0s] setup step 1 of 1: npm ci',
    '[2s] setup done after 2s',
    '[2s] map begins',
    '[2s] name-1 started',
    '[2s] name-2 started',
    '[3s] name-1 successful after 1.5s',
    '[3s] name-2 started, attempt 2',
    'a note',
    '[3s] name-2 timed out after 3s: Agent item-2 timed out',
    '[3s] map done after 3s',
    '',
  ])
})

test('ends that came too fast to be told one by one are counted', async () => {
  const { io, display } = open({ terminal: false })
  const show = (successful: number, last: number) =>
    display.show(
      snapshotOf({
        phases: [],
        counts: countsOf({ waiting: 100 - successful, successful }),
        recent: [endedItem(last - 1), endedItem(last)],
      }),
    )
  show(40, 40)
  show(60, 60)
  show(61, 61)
  expect(io.err.split('\n').slice(1)).toEqual([
    '[0s] 38 ended before',
    '[0s] name-39 successful after 1.5s',
    '[0s] name-40 successful after 1.5s',
    '[0s] 18 more ended',
    '[0s] name-59 successful after 1.5s',
    '[0s] name-60 successful after 1.5s',
    '[0s] name-61 successful after 1.5s',
    '',
  ])
})

test('the list of ends may be one that grows in place, and an item may end twice alike', () => {
  const { io, display } = open({ terminal: false })
  const recent = [endedItem(1, { status: 'timed_out' })]
  const show = (timedOut: number) =>
    display.show(snapshotOf({ phases: [], recent, counts: countsOf({ waiting: 1, timedOut }) }))
  show(0)
  recent.push(endedItem(1, { status: 'timed_out' }))
  show(1)
  show(1)
  expect(io.err.split('\n').slice(1)).toEqual([
    '[0s] name-1 timed out after 1.5s',
    '[0s] name-1 timed out after 1.5s',
    '',
  ])
})

test('from time to time the counts are told, also when nothing happens', async () => {
  const { io, clock, display } = open({ terminal: false })
  display.show(running(2))
  await clock.advance('30s')
  await clock.advance('30s')
  display.close()
  await clock.advance('1m')
  expect(io.err.split('\n').slice(1)).toEqual(['[30s] 2 items: 2 running', '[1m] 2 items: 2 running', ''])
})

test('a terminal that cannot move its cursor gets lines', () => {
  const { io, display } = open({ terminal: true, env: { TERM: 'dumb' } })
  display.show(running(1))
  display.clear()
  expect(io.err).toBe('[0s] pipeline begins (j_1)\n')
})
