import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { Colours } from './colours.ts'
import { TestIo } from './fixtures/test-io.ts'
import { cutTo, oneLine, padTo, printable, widthOf } from './plain-text.ts'
import { countdown, progressText, roughDuration } from './print.ts'
import { tableLines } from './text-table.ts'
import { treeLines } from './tree-text.ts'

const plain = (options: { terminal?: boolean; env?: Record<string, string> } = {}) => {
  const io = new TestIo({ cwd: '/', ...options })
  return new Colours(io, io.stdout)
}

test('what a terminal would act on is shown, not sent', () => {
  expect(printable('a\x1b[31mred\x07\r\nb\tc\x9b')).toBe('a\\x1b[31mred\\x07\\x0d\nb\tc\\x9b')
  expect(printable('\u202eevil')).toBe('\\x202eevil')
  expect(oneLine(' two\n  lines\x1b ')).toBe('two lines\\x1b')
})

test('widths are counted in columns', () => {
  expect([widthOf('abc'), widthOf('日本'), widthOf('é'), widthOf('👩‍👩‍👧')]).toEqual([3, 4, 1, 2])
  expect([widthOf('「、」'), widthOf('ＡＢ！'), widthOf('❤️'), widthOf('1️⃣')]).toEqual([6, 6, 2, 2])
  expect(cutTo('日本語', 5)).toBe('日本…')
  expect([cutTo('abc', 3), cutTo('abcd', 3), cutTo('abcd', 1), cutTo('abcd', 0)]).toEqual([
    'abc',
    'ab…',
    '…',
    '',
  ])
  expect(padTo('日', 4)).toBe('日  ')
})

test('a table fits: the widest that may shrink does, empty columns are left out', () => {
  const rows = [
    { id: 't_1', name: 'a rather long name of a task', note: '' },
    { id: 't_2', name: 'short', note: '' },
  ]
  const columns = [
    { title: 'ID', text: (row: (typeof rows)[number]) => row.id },
    { title: 'NAME', text: (row: (typeof rows)[number]) => row.name, shrinksTo: 6 },
    { title: 'NOTE', text: (row: (typeof rows)[number]) => row.note },
  ]
  expect(tableLines(rows, columns, { width: 16, colours: plain() })).toEqual([
    'ID   NAME',
    't_1  a rather l…',
    't_2  short',
  ])
  expect(tableLines(rows, columns, { width: 5, colours: plain() })[1]).toBe('t_1  a rat…')
  expect(tableLines(rows, columns, { width: null, colours: plain() })[1]).toBe(
    't_1  a rather long name of a task',
  )
})

test('a column that can be missed goes before the table is too wide', () => {
  const rows = [{ id: 't_1', kind: 'task', age: '12s' }]
  const columns = [
    { title: 'ID', text: (row: (typeof rows)[number]) => row.id },
    { title: 'KIND', text: (row: (typeof rows)[number]) => row.kind, optional: true },
    { title: 'AGE', text: (row: (typeof rows)[number]) => row.age, optional: true },
  ]
  const draw = (width: number) => tableLines(rows, columns, { width, colours: plain() })[1]
  expect([draw(20), draw(10), draw(5)]).toEqual(['t_1  task  12s', 't_1  task', 't_1'])
})

test('colours change nothing but the colour', () => {
  const rows = [{ status: 'failed' }, { status: 'completed' }]
  const draw = (colours: Colours) =>
    tableLines(
      rows,
      [
        {
          title: 'STATUS',
          text: (row: (typeof rows)[number]) => row.status,
          colour: (text, row) => colours.status(row.status, text),
        },
        { title: 'AGAIN', text: (row: (typeof rows)[number]) => row.status },
      ],
      { width: null, colours },
    )
  const coloured = draw(plain({ terminal: true }))
  expect(coloured[1]).toContain('\x1b[31mfailed\x1b[39m')
  expect(coloured.map(stripVTControlCharacters)).toEqual(draw(plain()))
})

test.each([
  ['a pipe', { terminal: false }],
  ['NO_COLOR', { terminal: true, env: { NO_COLOR: '1' } }],
  ['a terminal that cannot', { terminal: true, env: { TERM: 'dumb' } }],
])('%s gets no colours', (_, options) => {
  expect(plain(options).status('failed')).toBe('failed')
})

test('an empty NO_COLOR is none', () => {
  expect(plain({ terminal: true, env: { NO_COLOR: '' } }).status('failed')).not.toBe('failed')
})

test('a tree is drawn with its lines', () => {
  const leaf = (name: string) => ({ lines: [name, `more of ${name}`], below: [] })
  const tree = { lines: ['root', 'more'], below: [{ lines: ['a'], below: [leaf('b')] }, leaf('c')] }
  expect(treeLines(tree)).toEqual([
    'root',
    '│ more',
    '├─ a',
    '│  └─ b',
    '│       more of b',
    '└─ c',
    '     more of c',
  ])
})

test('times are told as people tell them', () => {
  expect([
    roughDuration(340),
    roughDuration(1_234),
    roughDuration(61_400),
    roughDuration(90_061_000),
  ]).toEqual(['340ms', '1.2s', '1m1s', '1d1h1m'])
  expect([countdown(59_001), countdown(1), countdown(0), countdown(-5)]).toEqual(['1m', '1s', 'now', 'now'])
  expect(progressText({ fraction: 0.416 })).toBe('41%')
  expect(progressText({ completed: 3, total: 4 })).toBe('75% (3/4)')
  expect(progressText({ completed: 3 })).toBe('3')
})
