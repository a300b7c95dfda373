// Tasks and what becomes of them: `npm run tasks`.
// Some tasks succeed, one fails once and is retried, one hangs and is stopped, one ignores its signal and is killed.
// At the end a table says what happened to each, and why.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { styleText } from 'node:util'
import type { TaskHandle } from '../src/curfew.ts'
import { Curfew, task } from '../src/curfew.ts'
import { mineCoins } from './first-tasks/stubborn.ts'

// A task is a name and a function, with the limits that hold for it.
const resizeImage = task({
  name: 'resize-image',
  timeout: '10s',
  run: async (input: { file: string; width: number }) => {
    await sleep(150)
    return `${input.file} is ${input.width} px wide now`
  },
})

// It fails at its first attempt. `retries` gives it up to two more.
const sendMail = task({
  name: 'send-mail',
  timeout: '10s',
  retries: 2,
  backoff: { initial: '400ms' },
  run: async (to: string, { attempt }) => {
    if (attempt === 1) throw new Error('the mail server is busy')
    return `sent to ${to}`
  },
})

// It waits for an answer that never comes. Its limit aborts the signal, and the wait ends with it.
const askModel = task({
  name: 'ask-model',
  timeout: '1s',
  run: async (question: string, { signal }) => {
    await sleep(3_600_000, undefined, { signal })
    return `no answer to ${question}`
  },
})

const folder = await mkdtemp(path.join(tmpdir(), 'curfew-first-tasks-'))
const curfew = await Curfew.open({
  store: path.join(folder, 'tasks.db'),
  tasks: [resizeImage, sendMail, askModel, mineCoins],
})
try {
  // Each of these is on disk when `schedule` resolves: a crash now would lose none.
  const handles: TaskHandle[] = [
    await curfew.schedule(resizeImage, { file: 'cat.png', width: 640 }),
    await curfew.schedule(resizeImage, { file: 'dog.png', width: 320 }),
    await curfew.schedule(sendMail, 'ada@example.org'),
    await curfew.schedule(askModel, 'what is time?'),
    await curfew.schedule(mineCoins, 1_000_000_000),
  ]
  console.log(`${handles.length} tasks are scheduled.\n`)

  // `result()` answers what the handler returned, or throws what became of it.
  const started = performance.now()
  await Promise.all(
    handles.map(async (handle) => {
      const [settled] = await Promise.allSettled([handle.result()])
      const { name } = await handle.view()
      const end = settled.status === 'fulfilled' ? settled.value : `threw ${settled.reason.name}`
      console.log(`${seconds(performance.now() - started).padStart(7)}  ${name.padEnd(13)} ${end}`)
    }),
  )

  console.log('\nWhat happened to each, and why:\n')
  printTable(['task', 'status', 'attempts', 'time', 'receipt', 'why'], await Promise.all(handles.map(rowOf)))
} finally {
  await curfew.close()
  await rm(folder, { recursive: true })
}

async function rowOf(handle: TaskHandle): Promise<string[]> {
  const [view, explained] = await Promise.all([handle.view(), handle.explain()])
  const failures = explained.attempts.flatMap(({ attempt, failure }) =>
    failure ? [`; attempt ${attempt}: ${failure.message}`] : [],
  )
  return [
    view.name,
    view.status,
    String(view.attempts),
    seconds((view.endedAt ?? view.createdAt) - view.createdAt),
    explained.attempts.at(-1)?.receipt ?? '-',
    explained.summary + failures.join(''),
  ]
}

function printTable(head: string[], rows: string[][]): void {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]?.length ?? 0)))
  const line = (cells: string[], paint: (cell: string, i: number) => string) =>
    cells.map((cell, i) => paint(cell.padEnd(i < cells.length - 1 ? (widths[i] ?? 0) : 0), i)).join('  ')
  console.log(line(head, (cell) => colour('bold', cell)))
  for (const row of rows) console.log(line(row, (cell, i) => (i === 1 ? statusColour(cell) : cell)))
}

function statusColour(cell: string): string {
  return colour(cell.trim() === 'completed' ? 'green' : 'red', cell)
}

/** Only a terminal gets colours. */
function colour(format: 'bold' | 'green' | 'red', text: string): string {
  return process.stdout.isTTY ? styleText(format, text) : text
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(2)} s`
}
