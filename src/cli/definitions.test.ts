import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadWorkflow } from '../definitions/workflow.ts'
import { graph } from '../definitions/workflow-graph.ts'
import { curfew } from './fixtures/test-io.ts'

let cwd: string

const WORKFLOW = 'name: flow\nnodes:\n  - { id: a, action_id: work, timeout: 1m }\n'
const JOB = `name: nightly
timeout: 2h
workflows:
  - { id: extract, task: work }
  - id: check
    depends_on: extract
    workflow: { name: check, timeout: 5m, nodes: [{ id: a, action_id: work, timeout: 1m }] }
  - { id: alarm, task: work, depends_on: [extract, check], run_if: failed }
`

beforeAll(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  const curfewFile = path.join(import.meta.dirname, '../curfew.ts')
  await Promise.all([
    writeFile(path.join(cwd, 'flow.yml'), WORKFLOW),
    writeFile(path.join(cwd, 'job.yml'), JOB),
    writeFile(path.join(cwd, 'wrong.yml'), 'name: wrong\nnodes:\n  - { id: a, timout: 1m }\n'),
    writeFile(path.join(cwd, 'reduce.yml'), 'name: r\nmode: mapreduce\nmap: {}\n'),
    writeFile(path.join(cwd, 'broken.yml'), 'a: [\n'),
    writeFile(
      path.join(cwd, 'tasks.ts'),
      `import { task } from '${curfewFile}'\nexport const other = task({ name: 'wrok', run: () => 1 })\n`,
    ),
  ])
})

afterAll(async () => {
  await rm(cwd, { recursive: true, force: true })
})

test('validate says what is valid, and exits 0', async () => {
  const { code, out, err } = await curfew(['validate', 'flow.yml', 'job.yml'], { cwd })
  expect(out).toBe('flow.yml: workflow flow is valid\njob.yml: job nightly is valid\n')
  expect([code, err]).toEqual([0, ''])
})

test('validate tells every problem of every file with its line, and exits 2', async () => {
  const { code, out } = await curfew(['validate', 'wrong.yml', 'flow.yml', 'gone.yml', 'broken.yml'], { cwd })
  expect(code).toBe(2)
  expect(out).toContain(
    "wrong.yml:3:14: error: nodes[0].timout: is not a key here\n  Did you mean 'timeout'?",
  )
  expect(out).toContain('flow.yml: workflow flow is valid')
  expect(out).toContain('gone.yml: error: it cannot be read: there is no such file')
  expect(out).toMatch(/broken\.yml:\d+:\d+: error:/)
})

test('validate --json is one document', async () => {
  const { code, json } = await jsonOf(['validate', 'flow.yml', 'wrong.yml', '--json'])
  expect(code).toBe(2)
  expect(json).toMatchObject({
    valid: false,
    files: [
      { file: 'flow.yml', kind: 'workflow', name: 'flow', valid: true, problems: [] },
      { file: 'wrong.yml', valid: false, problems: [{ code: 'unknown_key', line: 3, column: 14 }] },
    ],
  })
})

test('validate checks names against modules', async () => {
  const { code, out } = await curfew(['validate', 'flow.yml', '--module', 'tasks.ts'], { cwd })
  expect(code).toBe(2)
  expect(out).toContain("there is no task 'work'\n  Did you mean 'wrok'?")
})

test('problems are coloured on a terminal only', async () => {
  const { out } = await curfew(['validate', 'wrong.yml', 'flow.yml'], { cwd, terminal: true })
  expect(out).toContain('\x1b[31merror:\x1b[39m')
  const quiet = await curfew(['validate', 'wrong.yml'], { cwd, terminal: true, env: { NO_COLOR: '1' } })
  expect(quiet.out).not.toContain('\x1b')
})

test('validate tells what is wrong with a map-reduce', async () => {
  const { code, out } = await curfew(['validate', 'reduce.yml'], { cwd })
  expect(code).toBe(2)
  expect(out).toMatch(/^reduce\.yml:3:\d+: error: map: /m)
})

test('graph draws a workflow', async () => {
  const { code, out } = await curfew(['graph', 'flow.yml'], { cwd })
  expect([code, out]).toEqual([0, graph(loadWorkflow(WORKFLOW))])
})

test('graph draws a job, or a workflow that is written in it', async () => {
  const { code, out } = await curfew(['graph', 'job.yml'], { cwd })
  expect(code).toBe(0)
  expect(out).toBe(`---
title: "nightly (≤ 2h)"
---
flowchart TD
  n0["extract<br/>task work"]
  n1["check<br/>≤ 5m"]
  n2["alarm<br/>task work"]
  n0 --> n1
  n0 -- "run if failed" --> n2
  n1 -- "run if failed" --> n2
`)
  const inner = await curfew(['graph', 'job.yml', '--workflow', 'check'], { cwd })
  expect(inner.out).toContain('title: "check (≤ 5m, cancel_all)"')
})

test('graph --json carries the drawing', async () => {
  const { json } = await jsonOf(['graph', 'flow.yml', '--json'])
  expect(json).toEqual({
    file: 'flow.yml',
    kind: 'workflow',
    name: 'flow',
    mermaid: graph(loadWorkflow(WORKFLOW)),
  })
})

test.each([
  [['graph', 'wrong.yml'], 'invalid_definition'],
  [['graph', 'gone.yml'], 'no_such_file'],
  [['graph', '.'], 'no_such_file'],
  [['graph', 'job.yml', '--workflow', 'nothing'], 'usage'],
  [['graph', 'job.yml', '--workflow', 'extract'], 'usage'],
  [['graph', 'flow.yml', '--workflow', 'a'], 'usage'],
])('%j is refused with 2', async (args, code) => {
  const { out, err, code: exit } = await curfew([...args, '--json'], { cwd })
  expect([exit, out]).toEqual([2, ''])
  expect(JSON.parse(err)).toMatchObject({ error: { code, message: expect.any(String) } })
})

async function jsonOf(args: string[]): Promise<{ code: number; json: unknown }> {
  const io = await curfew(args, { cwd })
  expect(io.err).toBe('')
  return { code: io.code, json: io.json() }
}
