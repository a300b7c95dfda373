// Dead letters from the item that is given up to the one that is done after all, with real processes.
import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CliProcess, until } from './fixtures/cli-process.ts'
import type { LetterDocument } from './letter-document.ts'

let cwd: string
let jobId: string
const begun: CliProcess[] = []

beforeAll(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-dlq-'))
  const git = (...args: string[]) => execFileSync('git', args, { cwd })
  git('init', '--quiet')
  git('-c', 'user.email=a@b', '-c', 'user.name=n', 'commit', '--quiet', '--allow-empty', '-m', 'begin')
  await writeFile(
    path.join(cwd, 'pipeline.yml'),
    `name: pipeline
mode: mapreduce
secrets: [SECRET]
map:
  input: { items: [{ path: slow.md }, { path: bad.md }, { path: good.md }] }
  agent_timeout_secs: 1
  timeout_config: { cleanup_grace_period_secs: 1 }
  agent_template:
    - shell: echo first > \${item.path} && git add . && git -c user.email=a@b -c user.name=n commit -qm \${item.path}
    - shell: |
        echo "partial of $SECRET"
        case \${item.path} in
          slow.md) while ! test -e ${cwd}/fast; do sleep 0.05; done;;
          bad.md) while test -e ${cwd}/held && ! test -e ${cwd}/go; do sleep 0.05; done; exit 3;;
        esac
`,
  )
})
afterAll(async () => {
  for (const one of begun) await one.end()
  await rm(cwd, { recursive: true, force: true })
})

function start(...args: string[]): CliProcess {
  const env = { CURFEW_STATE_DIR: path.join(cwd, 'state'), SECRET: 'hunter2-hunter2' }
  const made = new CliProcess([...args, '--json'], { cwd, env })
  begun.push(made)
  return made
}
async function ended(...args: string[]) {
  const one = start(...args)
  return { exit: await one.exited, out: one.stdout, err: one.stderr }
}
const shown = async (itemId: string) =>
  JSON.parse((await ended('dlq', 'show', jobId, itemId)).out) as LetterDocument
const listed = async (...args: string[]) => {
  const { out } = await ended('dlq', 'list', ...args)
  return (JSON.parse(out) as { letters: LetterDocument[] }).letters
}

test('D1, H1, E4, E9: an item that times out is there with its limit, its attempts and what is left of it', async () => {
  const run = await ended('run', 'pipeline.yml')
  expect(run.exit, run.err).toBe(1)
  const letters = await listed()
  expect(letters.map(({ itemId, errorType }) => [itemId, errorType])).toEqual([
    ['item-0', 'timeout'],
    ['item-1', 'failure'],
  ])
  jobId = letters[0]?.jobId ?? ''
  const letter = await shown('item-0')
  expect(letter).toMatchObject({
    ...{ errorType: 'timeout', eligible: true, state: 'open', attempts: 1, item: { path: 'slow.md' } },
    timeout: { kind: 'agent', commandIndex: 1, limitMs: 1_000, source: 'agent_timeout_secs' },
    partial: { steps: [{ status: 'completed', exitCode: 0 }, {}], kept: { changedFiles: ['slow.md'] } },
  })
  expect(letter.timeout?.elapsedMs).toBeGreaterThanOrEqual(1_000)
  expect(letter.history).toHaveLength(letter.attempts)
  expect(letter.output?.stdout).toContain('partial of ')
  expect(JSON.stringify(letter)).not.toContain('hunter2')
})

test('H2: retried with another limit, what is done is resolved; the others are left alone', async () => {
  await writeFile(path.join(cwd, 'fast'), '')
  const retry = await ended('dlq', 'retry', jobId, '--error-type', 'timeout', '--timeout', '30')
  expect(retry.exit, retry.err).toBe(0)
  expect(await shown('item-0')).toMatchObject({ state: 'resolved', retryId: null, eligible: false })
  expect(await listed(jobId)).toMatchObject([{ itemId: 'item-1', attempts: 1, retriedAt: null }])
})

test('H2, H3: while one retries it another is refused; one that fails again has a longer history', async () => {
  await writeFile(path.join(cwd, 'held'), '')
  const first = start('dlq', 'retry', jobId, '--timeout', '1m')
  await until(async () => (await listed(jobId))[0]?.retryId, 'it is being retried')
  const second = await ended('dlq', 'retry', jobId)
  expect(second.exit).toBe(1)
  expect(JSON.parse(second.err.trim().split('\n').at(-1) ?? '')).toMatchObject({
    error: { code: 'being_retried' },
  })
  await writeFile(path.join(cwd, 'go'), '')
  expect(await first.exited).toBe(1)
  const letter = await shown('item-1')
  expect(letter).toMatchObject({
    state: 'open',
    errorType: 'failure',
    attempts: 2,
    retryId: null,
    eligible: true,
  })
  expect(letter.history?.map((one) => one.jobId === jobId)).toEqual([true, false])
})
