import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { writeProject } from './fixtures/live.ts'
import { curfew, TestIo } from './fixtures/test-io.ts'
import { main } from './program.ts'

let cwd: string

beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await writeProject(cwd)
})

afterEach(async () => {
  await rm(cwd, { recursive: true, force: true })
})

const run = (file: string, ...args: string[]) =>
  curfew(['run', file, '--module', 'tasks.ts', ...args], { cwd })

describe('to its end', () => {
  test('the output goes to stdout, progress and summary to stderr', async () => {
    const { code, out, err } = await run('double.yml', '--input', '21')
    expect([code, out]).toEqual([0, '42\n'])
    expect(err).toMatch(/^double-flow\/only completed \d+ms\ndouble-flow completed \d+ms\n/m)
    expect(err).toMatch(/\nworkflow double-flow completed after [\d.]+m?s \(w_\w+\)\n$/)
  })

  test('the store is closed afterwards, with the work in it', async () => {
    await run('double.yml', '--input', '1')
    expect((await readdir(cwd)).filter((name) => name.startsWith('curfew.db'))).toEqual(['curfew.db'])
    const { works } = (await curfew(['list', '--json'], { cwd })).json() as { works: { status: string }[] }
    expect(works.map(({ status }) => status)).toEqual(['completed', 'completed'])
  })

  test('a job gives the outputs of its workflows', async () => {
    const { code, out } = await run('job.yml')
    expect([code, JSON.parse(out)]).toEqual([0, { one: 42, two: 8 }])
  })

  test('--json is one document', async () => {
    const io = await run('job.yml', '--json')
    expect(io.json()).toMatchObject({
      ...{ kind: 'job', name: 'pair', status: 'completed', output: { one: 42, two: 8 } },
      workflows: [
        { id: 'one', output: 42 },
        { id: 'two', output: 8 },
      ],
    })
  })

  test('a shell action runs without any module', async () => {
    const { code, out } = await curfew(['run', 'shell.yml'], { cwd })
    expect([code, JSON.parse(out)]).toMatchObject([0, { stdout: 'hello\n' }])
  })

  test('input comes from a file or from stdin', async () => {
    await writeFile(path.join(cwd, 'input.json'), '3')
    expect((await run('double.yml', '--input', '@input.json')).out).toBe('6\n')
    const io = new TestIo({ cwd, stdin: '4' })
    expect([await main(['run', 'double.yml', '--module', 'tasks.ts', '--input', '-'], io), io.out]).toEqual([
      0,
      '8\n',
    ])
  })

  test('input that begins with a byte order mark, as editors of Windows write it, is read', async () => {
    await writeFile(path.join(cwd, 'input.json'), '\ufeff3\r\n')
    expect((await run('double.yml', '--input', '@input.json')).out).toBe('6\n')
    const io = new TestIo({ cwd, stdin: '\ufeff4' })
    expect(await main(['run', 'double.yml', '--module', 'tasks.ts', '--input', '-'], io)).toBe(0)
  })

  test('the same key goes on with what is there', async () => {
    const first = await run('double.yml', '--input', '5', '--key', 'a', '--json')
    const second = await run('double.yml', '--input', '5', '--key', 'a', '--json')
    expect((second.json() as { id: string }).id).toBe((first.json() as { id: string }).id)
    expect(second.err).toContain('It was started before')
  })

  test('on a terminal the tree is redrawn in place, in colour', async () => {
    const io = new TestIo({ cwd, terminal: true, columns: 60, rows: 10 })
    expect(await main(['run', 'double.yml', '--module', 'tasks.ts', '--input', '21'], io)).toBe(0)
    expect(io.err).toContain('\x1b[32mcompleted\x1b[39m')
    const [, last] = io.err.split('\x1b[J').slice(-2)
    const drawn = stripVTControlCharacters(io.err.split('\x1b[J').at(-2) ?? '')
    expect(drawn).toMatch(/double-flow completed \S+\n└─ only completed \S+\n$/)
    expect(stripVTControlCharacters(last ?? '')).toMatch(/^workflow double-flow completed after/)
  })
})

describe('exit codes', () => {
  test('1 when it failed, and why', async () => {
    const { code, out, err } = await run('boom.yml')
    expect([code, out]).toEqual([1, ''])
    expect(err).toMatch(/error: workflow boom-flow \(w_\w+\) failed: .*it broke/)
  })

  test('1 with --json has the failure in the document', async () => {
    const io = await run('boom.yml', '--json')
    expect([io.code, io.json()]).toMatchObject([1, { status: 'failed', output: null, failure: {} }])
  })

  test('124 when it timed out', async () => {
    const { code, err } = await run('hang.yml', '--timeout', '100ms')
    expect(code).toBe(124)
    expect(err).toMatch(/error: workflow hang-flow \(w_\w+\) timed out after 100ms/)
  })

  test.each([
    [['wrong.yml'], 'invalid_definition'],
    [['gone.yml'], 'no_such_file'],
    [['double.yml', '--input', '{not json'], 'invalid_json'],
    [['double.yml', '--input', '@gone.json'], 'no_such_file'],
    [['double.yml', '--timeout', '5 parsecs'], 'invalid_duration'],
    [['double.yml', '--timeout', '90'], 'invalid_duration'],
    [['job.yml', '--input', '1'], 'usage'],
    [['job.yml', '--timeout', '1m'], 'usage'],
    [['double.yml', '--store', 'a.db', '--manager', 'http://127.0.0.1:1'], 'usage'],
    [['double.yml', '--inptu', '1'], 'usage'],
  ])('2 for %j, and no store is made', async (args, code) => {
    const { code: exit, out, err } = await run(args[0]!, ...args.slice(1), '--json')
    expect([exit, out]).toEqual([2, ''])
    expect(JSON.parse(err)).toMatchObject({ error: { code } })
    expect((await readdir(cwd)).filter((name) => name.includes('.db'))).toEqual([])
  })

  test('2 for tasks that nobody here has, with their line', async () => {
    const { code, err } = await curfew(['run', 'double.yml'], { cwd })
    expect(code).toBe(2)
    expect(err).toContain("double.yml:3:28: error: nodes[0].action_id: there is no task 'double'")
  })

  test('1 for a folder that is not there', async () => {
    const { code, err } = await run('double.yml', '--input', '1', '--store', 'no/such/folder.db')
    expect([code, err]).toEqual([1, expect.stringContaining('cannot open the store')])
  })

  test('130 after Ctrl-C: the work is cancelled, and has stopped', async () => {
    const io = new TestIo({ cwd })
    const ended = main(['run', 'hang.yml', '--module', 'tasks.ts', '--json'], io)
    await io.printed(/hang-flow\/only running/)
    io.send('SIGINT')
    expect(await ended).toBe(130)
    expect(io.err).toContain('Cancelling')
    expect(io.json()).toMatchObject({ status: 'cancelled', settled: true })
    expect(io.exitedNow).toBe(null)
    const listed = await curfew(['list', '--name', 'hang', '--json'], { cwd })
    expect(listed.json()).toMatchObject({
      works: [{ status: 'cancelled', receipt: 'aborted', settled: true }],
    })
  })

  test('a second Ctrl-C ends at once', async () => {
    const io = new TestIo({ cwd })
    const ended = main(['run', 'stubborn.yml', '--module', 'tasks.ts'], io)
    await io.printed(/stubborn-flow\/only running/)
    io.send('SIGINT')
    await io.printed(/Cancelling/)
    expect(io.exitedNow).toBe(null)
    io.send('SIGINT')
    expect(io.exitedNow).toBe(130)
    await ended
  })
})
