import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { writeProject } from './fixtures/live.ts'
import { curfew, TestIo } from './fixtures/test-io.ts'
import { main } from './program.ts'

let cwd: string
let url: string

beforeAll(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await writeProject(cwd)
  url = await createDatabase(inject('postgresUrl'))
})

afterAll(async () => {
  await rm(cwd, { recursive: true, force: true })
  if (url) await dropDatabase(url)
})

test('over a database run works on it, beside others that look at it', async () => {
  const file = path.join(cwd, 'there')
  const running = new TestIo({ cwd })
  const args = ['run', 'wait.yml', '--module', 'tasks.ts', '--input', JSON.stringify(file), '--store', url]
  const ended = main(args, running)
  await running.printed(/wait-flow\/only running/)
  const listed = await curfew(['list', '--kind', 'workflow', '--json', '--store', url], { cwd })
  // Of a database nobody can tell whether somebody works on it.
  expect([listed.code, listed.err]).toEqual([0, ''])
  const [{ id }] = (listed.json() as { works: [{ id: string }] }).works
  const watching = new TestIo({ cwd })
  const watched = main(['watch', id, '--store', url], watching)
  await watching.printed(/wait-flow\/only running/)
  await writeFile(file, '')
  expect([await ended, await watched]).toEqual([0, 0])
  expect(running.out).toBe('"it came"\n')
  expect(watching.out).toMatch(/wait-flow completed/)
})

test('a password never shows', async () => {
  const wrong = new URL(url)
  wrong.password = 'a-secret'
  wrong.port = '1'
  const { code, out, err } = await curfew(['list', '--store', wrong.href], { cwd })
  expect([code, out]).toEqual([1, ''])
  expect(err).not.toContain('a-secret')
})

test.each([['list'], ['manager', '--listen', '127.0.0.1:0']])(
  'a database that is not there is told with what to check: %s has ended, and nothing goes on',
  async (...args) => {
    const nowhere = new URL(url)
    nowhere.port = '1'
    const { code, err } = await curfew([...args, '--store', nowhere.href, '--json'], { cwd })
    expect([code, JSON.parse(err).error]).toMatchObject([
      1,
      {
        code: 'store_unavailable',
        message: expect.stringMatching(/^PostgreSQL cannot be reached: connect ECONNREFUSED/),
        hint: expect.stringContaining('Check that it runs, and the host and port'),
      },
    ])
    expect(err).not.toContain('goes on')
  },
)
