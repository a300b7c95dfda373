// Every example runs as it is, as a program of its own, and prints what it promises.

import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../scripts/postgres/database.ts'

const run = promisify(execFile)

/** Answers what it printed; rejects unless it exits with 0. */
async function runExample(name: string, ...args: string[]): Promise<string> {
  const file = path.join(import.meta.dirname, name)
  return (await run(process.execPath, [file, ...args], { timeout: 25_000 })).stdout
}

// The others look at the clock too: this one is not among them.
test('mapreduce: items succeed, fail, hang and ignore SIGTERM, and each is told with its limit', async () => {
  const file = path.join(import.meta.dirname, 'mapreduce/run.ts')
  const { stdout, stderr } = await run(process.execPath, [file], { timeout: 60_000 })
  expect(stdout).not.toContain('\u001b')
  expect(stderr).toMatch(
    /milk failed after .*: Command 0 \(claude\) ended with exit code 1: I would rather not say\.\n/,
  )
  expect(stderr).toMatch(/\n8 items: 5 successful, 1 failed, 2 timed out\n/)
  expect(stderr).toMatch(
    /limit of command 0, claude: 3s, set by command_timeouts\["claude"\]: 2 items\n(?: {4}(?:water after .*, Graceful|nectar after .*, Force)Termination\n){2}/,
  )
  expect(stdout).toContain('\n# 5 of 8 drinks\n- cider: water, mostly\n- cocoa: water, mostly\n- coffee: ')
  expect(stdout.match(/^Answer for \w+$/gm)).toHaveLength(5)
  const [, letters = ''] = stdout.split('$ curfew dlq list\n')
  expect(
    letters
      .split('\n\n')[0]
      ?.match(/\b(?:milk|water|nectar)\b/g)
      ?.toSorted(),
  ).toEqual(['milk', 'nectar', 'water'])
}, 90_000)

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

test.concurrent('manager-and-workers: the work of a killed worker is done by the other', async () => {
  const printed = await runExample('cluster/manager-and-workers.ts')
  expect(printed).toContain('anna is attached, bert is attached\nanna is killed with -9')
  expect(printed).toMatch(/number \d+: lost with anna, done again by bert\n/)
  expect(printed).toContain('the sum of all squares is 506\n1 worker is left, with 0 of 2 slots taken\n')
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

// After the others: some of those look at the clock, and a process takes a core while it starts.
describe('workflows and jobs', () => {
  test.concurrent('sequential: what is missing is ordered before the order is shipped', async () => {
    expect(await runExample('workflows/sequential.ts')).toBe(
      `2 kettle shipped, by check, ship
5 kettle shipped, by check, restock, ship
`,
    )
  })

  test.concurrent('foreach-and-join: the graph is drawn, and all pages are summarized', async () => {
    const printed = await runExample('workflows/foreach-and-join.ts')
    expect(printed).toContain('n0 -- "for each topic of state.topics, 2 at a time" --> n1\n')
    expect(printed).toContain('5 pages, from a page about kettles to a page about cups\n')
  })

  test.concurrent('join-in-time: the prices that are there are compared, and the join says how many are not', async () => {
    const printed = await runExample('workflows/join-in-time.ts')
    expect(printed).toContain("[ { shop: 'amber', price: 12.5 }, { shop: 'dune', price: 11 } ]")
    expect(printed).toContain('late: 2\n')
    expect(printed).toContain('join_fired: 2 of 5 after its timeout\n')
  })

  test.concurrent('retry-on-timeout: two attempts are stopped, the third answers', async () => {
    expect(await runExample('workflows/retry-on-timeout.ts')).toBe(
      `What is six times seven? 42.
ask, attempt 1: execution limit of 300 ms, retry
ask, attempt 2: execution limit of 300 ms, retry
`,
    )
  })

  test.concurrent('race: one fails, one answers, one is stopped', async () => {
    const printed = await runExample('workflows/race.ts')
    expect(printed.replaceAll(/[\d.]+ms/g, '#')).toBe(
      `{ answer: 'south says 42' }
ask: failed, failed: north is overloaded
ask: cancelled, cancelled (the attempt was stopped by its signal)
ask: completed, completed by attempt 1 in #
`,
    )
  })

  test.concurrent('quorum: two of three are enough, and one is not', async () => {
    expect(await runExample('workflows/quorum.ts')).toBe(
      `{ approvals: { '1': 'approved by 1', '2': 'approved by 2' }, asked: 3 }
quorum_unreachable the join at transition review->publish can no longer be met: 0 of 3 branches arrived, 2 failed
`,
    )
  })

  test.concurrent('loop: it ends when the draft is good, or after three drafts', async () => {
    expect(await runExample('workflows/loop.ts')).toBe(
      `{ text: 'tea tea', verdict: 'good' } begin write rate write rate accept
{ text: 'tea tea tea', verdict: 'too short' } begin write rate write rate write rate give-up
`,
    )
  })

  test.concurrent('child-workflow: a child that hangs is timed out by its node', async () => {
    const printed = await runExample('workflows/child-workflow.ts')
    expect(printed).toContain("texts: [ 'a poem in en, proofread', 'a poem in sw, proofread' ]")
    expect(printed).toContain('localize: timed_out (workflow); translate timed_out; {}\n')
  })

  test.concurrent('shell-and-http: a page is fetched and its words are counted; a private address is refused', async () => {
    expect(await runExample('workflows/shell-and-http.ts')).toBe(
      `{ words: 3 }
unexpected_status
private_address
`,
    )
  })

  test.concurrent('from-yaml: the file runs, and one that is wrong is told by line and column', async () => {
    expect(await runExample('workflows/from-yaml.ts')).toBe(
      "{ pages: [ 'a page about tea', 'a page about cups' ], missing: 1 }\n",
    )
    const wrong = path.join(import.meta.dirname, 'workflows/wrong.yml')
    await expect(runExample('workflows/from-yaml.ts', wrong)).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining("wrong.yml:11:23: error: transitions[1].to: there is no node 'wirte'"),
    })
  })

  test.concurrent('dependencies: followers run by how those they depend on ended', async () => {
    const printed = await runExample('jobs/dependencies.ts')
    const jobs = printed
      .split(/^(?! )/m)
      .map((lines) => lines.replaceAll(/, .*/g, '').replaceAll(/:.*\(t_.*/g, ''))
    const afterFailure = [
      ...['workflow load failed', 'extract: completed', 'load: failed', 'report: cancelled'],
      ...['alarm: completed', 'clean: completed'],
    ]
    expect(jobs.map((job) => job.trim().split(/\n +/))).toEqual([
      [
        ...['completed', 'extract: completed', 'load: completed', 'report: completed'],
        ...['alarm: cancelled', 'clean: completed'],
      ],
      afterFailure,
      afterFailure,
    ])
  })

  test.concurrent('cancel-one-workflow: it has really stopped, with what waits for it; the others are done', async () => {
    const printed = await runExample('jobs/cancel-one-workflow.ts')
    expect(printed).toMatch(/^cancelled\n\{ success: true, errors: \[\] \} \[ 'render: aborted' \]\n/)
    expect(printed).toContain('  upload-long: cancelled, null\n')
    expect(printed).toContain('  upload-short: completed, short is uploaded\n')
  })
})

test.concurrent('no example is forgotten here', async () => {
  const folders = ['.', 'cluster', 'mapreduce', 'workflows', 'jobs'].map(async (folder) => {
    const files = await readdir(path.join(import.meta.dirname, folder))
    return files.filter((file) => file.endsWith('.ts')).map((file) => path.posix.join(folder, file))
  })
  const files = (await Promise.all(folders)).flat()
  expect(files.toSorted()).toEqual([
    'agents-on-a-virtual-clock.test.ts',
    'ask-a-person.ts',
    'cluster/manager-and-workers.ts',
    'deadlines.ts',
    'examples.test.ts',
    'first-good-answer.ts',
    'first-tasks.ts',
    'jobs/cancel-one-workflow.ts',
    'jobs/dependencies.ts',
    'mapreduce/run.ts',
    'postgres-workers.ts',
    'progress-and-extensions.ts',
    'results-in-time.ts',
    'testing-with-a-virtual-clock.test.ts',
    'workflows-on-a-virtual-clock.test.ts',
    'workflows/child-workflow.ts',
    'workflows/foreach-and-join.ts',
    'workflows/from-yaml.ts',
    'workflows/join-in-time.ts',
    'workflows/loop.ts',
    'workflows/quorum.ts',
    'workflows/race.ts',
    'workflows/retry-on-timeout.ts',
    'workflows/sequential.ts',
    'workflows/shell-and-http.ts',
  ])
})
