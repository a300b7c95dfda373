// Jobs whose files name map-reduces: what is looked at before anything runs.
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { curfew } from './fixtures/test-io.ts'

const FIRST = `name: first
mode: mapreduce
map:
  input: { items: [tea] }
  agent_template: [{ shell: 'echo \${item} \${params.size}' }]
reduce: [{ shell: 'true' }]
`
const ONE = '{ id: one, mapreduce: first.yml, input: { params: { size: large } } }'

let cwd: string
beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await mkdir(path.join(cwd, 'jobs'))
  await writeFile(path.join(cwd, 'jobs', 'first.yml'), FIRST)
})
afterEach(async () => {
  await rm(cwd, { recursive: true, force: true })
})

const job = (workflow: string) =>
  writeFile(path.join(cwd, 'jobs', 'job.yml'), `name: nightly\nworkflows:\n  - ${workflow}\n`)
const ended = (...args: string[]) => curfew(args, { cwd, env: { CURFEW_STATE_DIR: path.join(cwd, 'state') } })
/** Nothing was begun, and nothing made. */
const isClean = () => !existsSync(path.join(cwd, 'state')) && !existsSync(path.join(cwd, 'curfew.db'))

test.each([
  [
    'there is no such file',
    `{ id: one, mapreduce: nowhere.yml }`,
    /job\.yml:3:\d+.*nowhere\.yml cannot be read: there is no such file/,
  ],
  [
    'it is something else',
    `{ id: one, mapreduce: job.yml }`,
    /job\.yml:3:\d+.*job\.yml is no map-reduce but a job/,
  ],
  [
    'a parameter is missing',
    `{ id: one, mapreduce: first.yml }`,
    /first\.yml:\d+:\d+: error: .*there is no 'size' in 'params'/,
  ],
  [
    'its input has another key',
    `{ id: one, mapreduce: first.yml, input: { size: 1 } }`,
    /job\.yml:3:\d+.*size is not a key here|input\.size/,
  ],
  [
    'a parameter is no text',
    `{ id: one, mapreduce: first.yml, input: { params: { size: 1 } } }`,
    /job\.yml:3:\d+.*must be a text/,
  ],
  [
    'it is a folder',
    `{ id: one, mapreduce: ../jobs }`,
    /job\.yml:3:\d+.*jobs cannot be read: it is a folder/,
  ],
  [
    'it is written inline',
    `{ id: one, mapreduce: { name: x, mode: mapreduce } }`,
    /job\.yml:3:\d+.*must be the name of a file/,
  ],
])('it is refused where it stands: %s', async (_, workflow, message) => {
  await job(workflow)
  const validated = await ended('validate', 'jobs/job.yml')
  expect([validated.code, validated.out]).toEqual([2, expect.stringMatching(message)])
  const { code, err } = await ended('run', 'jobs/job.yml')
  expect([code, err, isClean()]).toEqual([2, expect.stringMatching(message), true])
})

test('submit is refused, for nobody would run its commands; and --key', async () => {
  await job(ONE)
  const submitted = await ended('submit', 'jobs/job.yml')
  expect([submitted.code, submitted.err]).toEqual([2, expect.stringContaining('curfew run jobs/job.yml')])
  const keyed = await ended('run', 'jobs/job.yml', '--key', 'k')
  expect([keyed.code, keyed.err, isClean()]).toEqual([2, expect.stringContaining('curfew resume JOB'), true])
})

test('graph --workflow draws one from its file', async () => {
  await job(ONE)
  const alone = await ended('graph', 'jobs/first.yml')
  const { code, out, err } = await ended('graph', 'jobs/job.yml', '--workflow', 'one')
  expect([code, out], err).toEqual([0, alone.out])
  expect(out).toMatch(/items.*tally.*reduce/s)
})
