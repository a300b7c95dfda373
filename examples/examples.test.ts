// Every example runs as it is, as a program of its own, and prints what it promises.

import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../scripts/postgres/database.ts'

const run = promisify(execFile)

/** Answers what it printed; rejects unless it exits with 0. */
async function runExample(name: string, ...args: string[]): Promise<string> {
  const file = path.join(import.meta.dirname, name)
  return (await run(process.execPath, [file, ...args], { timeout: 25_000 })).stdout
}

test.concurrent('first-tasks: a table says what happened to each task and why', async () => {
  const printed = await runExample('first-tasks.ts')
  expect(printed).not.toContain('\u001b')
  const rows = printed.slice(printed.indexOf('\ntask ') + 1).trim()
  const plain = rows.replaceAll(/[\d.]+ s /g, '# s ').replaceAll(/ in [\d.]+m?s/g, ' in #')
  expect(plain.replaceAll(/ +/g, ' ')).toBe(
    `task status attempts time receipt why
resize-image completed 1 # s exited completed by attempt 1 in #
resize-image completed 1 # s exited completed by attempt 1 in #
send-mail completed 2 # s exited completed by attempt 2 in #; attempt 1: the mail server is busy
ask-model timed_out 1 # s aborted timed out: its timeout of 1s was over (the attempt was stopped by its signal)
mine-coins timed_out 1 # s killed timed out: its timeout of 2s was over (the attempt was killed)`,
  )
})

test.concurrent('deadlines: each limit fires, once, and says which it was', async () => {
  const printed = await runExample('deadlines.ts')
  expect(printed.split('\n').filter((line) => /^\w+:/.test(line))).toEqual([
    'timeout: timed out: its timeout of 1s was over (the attempt was stopped by its signal)',
    expect.stringMatching(/^attemptTimeout: completed by attempt 2 in /),
    'queueTimeout: timed out: its queueTimeout of 1s was over',
    'heartbeatTimeout: timed out: its heartbeatTimeout of 2s was over (the attempt was stopped by its signal)',
    'stuckAfter: timed out: its stuckAfter of 2s was over (the attempt was stopped by its signal)',
  ])
  const fired = [...printed.matchAll(/(?:task|attempt)_timed_out.* kind (\w+)/g)].map(([, kind]) => kind)
  expect(fired).toEqual(['total', 'execution', 'queue', 'heartbeat', 'stuck'])
})

test.concurrent('progress-and-extensions: time is granted, and the second attempt goes on from the checkpoint', async () => {
  const printed = await runExample('progress-and-extensions.ts')
  expect(printed).toMatch(/row \d+: 1000 ms more/)
  expect(printed).toMatch(/attempt 2 starts at row (8|9|10|11|12)\n/)
  expect(printed).toContain('result: { rows: 16 }')
  expect(printed).toMatch(/attempt 1: failed, \d+ ms granted: the connection was reset/)
})

test.concurrent('postgres-workers: the work of a killed process is done by the others', async () => {
  const url = await createDatabase(inject('postgresUrl'))
  try {
    const printed = await runExample('postgres-workers.ts', url)
    expect(printed).toContain('anna is killed with -9')
    expect(printed).toMatch(/1 attempt was lost with anna, done again by (bert|cleo)/)
    expect(printed).toContain('the sum of all squares is 4324')
  } finally {
    await dropDatabase(url)
  }
})

test.concurrent('postgres-workers: without a database it says how it is called', async () => {
  await expect(runExample('postgres-workers.ts')).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining('usage: '),
  })
})

test.concurrent('first-good-answer: one fails, one answers, one is stopped', async () => {
  const printed = await runExample('first-good-answer.ts')
  expect(
    printed
      .replaceAll(/[\d.]+m?s/g, '#')
      .trim()
      .split('\n'),
  ).toEqual([
    'south says: What is six times seven? 42.',
    'failed: north is overloaded',
    'cancelled (the attempt was stopped by its signal)',
    'completed by attempt 1 in #',
    expect.stringMatching(/^completed after #, \d steps and \d turns$/),
  ])
})

test.concurrent('results-in-time: what is there in time is used, the rest is named', async () => {
  const printed = await runExample('results-in-time.ts')
  expect(printed).toContain('best: dune at 11, of 2 prices\n')
  expect(printed).toMatch(/cedar failed: .* sold out\n/)
  expect(printed).toContain('too late: birch, elm\n')
})

test.concurrent('ask-a-person: the question outlives its process, and is given up when nobody answers', async () => {
  const printed = await runExample('ask-a-person.ts')
  expect(printed).toMatch(/May we deploy\? \(reminder 1\)\nwaits since \w+ for signal decision/)
  expect(printed).toContain('asked again: it is there already\n')
  expect(printed).toMatch(/decision: \{ approved: true, by: 'ada', days: \d \}/)
  expect(printed.match(/mail to bob/g)).toHaveLength(8)
  expect(printed).toContain("decision: { approved: false, by: 'nobody', days: 7 }")
})

test.concurrent('no example is forgotten here', async () => {
  const files = (await readdir(import.meta.dirname)).filter((file) => file.endsWith('.ts'))
  expect(files.toSorted()).toEqual([
    'agents-on-a-virtual-clock.test.ts',
    'ask-a-person.ts',
    'deadlines.ts',
    'examples.test.ts',
    'first-good-answer.ts',
    'first-tasks.ts',
    'postgres-workers.ts',
    'progress-and-extensions.ts',
    'results-in-time.ts',
    'testing-with-a-virtual-clock.test.ts',
  ])
})
