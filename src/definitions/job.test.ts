import { describe, expect, test } from 'vitest'
import { agent } from './agent.ts'
import { job, jobOf, loadJob, validateJob } from './job.ts'
import { DefinitionError, formatProblem } from './problem.ts'
import { task } from './task.ts'
import { workflow } from './workflow.ts'

const crawl = workflow({ name: 'crawl', nodes: [{ id: 'a' }] })
const resize = task({ name: 'resize', run: (input: { n: number }) => input.n })
const writer = agent({ name: 'writer', run: async () => 1 })

describe('a job', () => {
  const text = `
name: nightly
timeout_seconds: 300
fail_fast: true
workflows:
  - { id: crawl, workflow: crawl, input: { urls: [a, b], depth: 2 } }
  - { id: write, agent: writer, depends_on: crawl }
  - { id: tidy, task: resize, input: { n: 1 }, depends_on: [crawl, write], run_if: always }
  - { id: many, mapreduce: files.yml }
`
  test('from text', () => {
    const { model, hash, warnings } = loadJob(text, { file: 'job.yml' })
    expect(warnings).toEqual([])
    expect(hash).toMatch(/^[0-9a-f]{64}$/)
    expect(model).toEqual({
      format: 1,
      name: 'nightly',
      timeoutMs: 300_000,
      stuckAfterMs: 120_000,
      failFast: true,
      workflows: [
        {
          id: 'crawl',
          kind: 'workflow',
          name: 'crawl',
          input: { urls: ['a', 'b'], depth: 2 },
          dependsOn: [],
          runIf: 'completed',
        },
        { id: 'write', kind: 'agent', name: 'writer', dependsOn: ['crawl'], runIf: 'completed' },
        {
          id: 'tidy',
          kind: 'task',
          name: 'resize',
          input: { n: 1 },
          dependsOn: ['crawl', 'write'],
          runIf: 'always',
        },
        { id: 'many', kind: 'mapreduce', name: 'files.yml', dependsOn: [], runIf: 'completed' },
      ],
    })
  })

  test('from TypeScript: the same model, with the definitions it was given', () => {
    const definition = job({
      name: 'nightly',
      timeout: '5m',
      failFast: true,
      workflows: [
        { id: 'crawl', workflow: crawl, input: { urls: ['a', 'b'], depth: 2 } },
        { id: 'write', agent: writer, dependsOn: 'crawl' },
        { id: 'tidy', task: resize, input: { n: 1 }, dependsOn: ['crawl', 'write'], runIf: 'always' },
        { id: 'many', mapreduce: 'files.yml' },
      ],
    })
    const { model } = loadJob(text)
    Object.assign(model.workflows[0]!, { definition: crawl.model })
    expect(definition.model).toEqual(model)
    expect(definition.uses).toEqual({ tasks: [resize], agents: [writer], workflows: [crawl] })
  })

  test('a graph can stand in the job itself, checked with its places', () => {
    const inline =
      'workflows:\n  - id: a\n    workflow:\n      name: inner\n      nodes: [{ id: x, action_id: t }]\n'
    expect(loadJob(inline).model.workflows[0]).toMatchObject({ name: 'inner', definition: { start: 'x' } })
    const { problems } = validateJob(inline.replace('id: x', 'id: x, timout: 5s'), { file: 'j.yml' })
    expect(problems.map(formatProblem)).toEqual([
      "j.yml:5:24: error: workflows[0].workflow.nodes[0].timout: is not a key here\n  Did you mean 'timeout'?",
    ])
  })

  test('the file of a map-reduce may be named by a path of any length', () => {
    const file = `/${'folder/'.repeat(40)}files.yml`
    expect(job({ workflows: [{ id: 'a', mapreduce: file }] }).model.workflows[0]).toMatchObject({
      name: file,
    })
    expect(() => job({ workflows: [{ id: 'a', mapreduce: '' }] })).toThrow('must be the name of a file')
  })

  test('one workflow, agent or task is a job of one', () => {
    expect(jobOf(resize, { n: 1 }).model.workflows).toEqual([
      { id: 'resize', kind: 'task', name: 'resize', input: { n: 1 }, dependsOn: [], runIf: 'completed' },
    ])
    expect(jobOf(crawl).model.workflows[0]).toMatchObject({ kind: 'workflow', definition: crawl.model })
    expect(jobOf(writer).model.workflows[0]).toMatchObject({ kind: 'agent', name: 'writer' })
  })

  test('ids are checked by their types', () => {
    const broken = () =>
      job({
        workflows: [
          { id: 'a', task: resize },
          // @ts-expect-error there is no such workflow
          { id: 'b', task: resize, dependsOn: ['x'] },
        ],
      })
    expect(broken).toThrow(DefinitionError)
    // @ts-expect-error exactly one kind of work
    expect(() => job({ workflows: [{ id: 'a', task: resize, agent: writer }] })).toThrow('got agent and task')
  })
})

test('an input is kept as JSON, as that of a task is', () => {
  const input = { at: new Date(0), urls: [new URL('https://example.org')], left: undefined }
  const { model } = job({ workflows: [{ id: 'a', task: 'show', input }] })
  expect(model.workflows[0]?.input).toEqual({
    at: '1970-01-01T00:00:00.000Z',
    urls: ['https://example.org/'],
  })
})

describe('a problem of a job', () => {
  const codes = (text: string) =>
    validateJob(text).problems.map(({ code, line, severity }) => `${line} ${severity} ${code}`)

  test.each<[string, string, string[]]>([
    ['none', 'workflows: []', ['1 error no_workflows']],
    ['no list', 'name: x', ['1 error missing_key']],
    ['timeout 0', 'timeout_seconds: 0\nworkflows: [{ id: a, task: t }]', ['1 error invalid_duration']],
    ['a negative timeout', 'timeout: -5s\nworkflows: [{ id: a, task: t }]', ['1 error invalid_duration']],
    ['NaN', 'timeout_seconds: .nan\nworkflows: [{ id: a, task: t }]', ['1 error invalid_value']],
    ['unknown', 'workflows:\n- { id: a, task: t, depends_on: [b] }', ['2 error unknown_workflow']],
    [
      'one that was not read is there all the same',
      'workflows:\n- { id: a, tsak: t }\n- { id: b, task: t, depends_on: a }',
      ['2 error invalid_value', '2 error unknown_key'],
    ],
    ['duplicate ids', 'workflows:\n- { id: a, task: t }\n- { id: a, task: t }', ['3 error duplicate_id']],
    [
      'duplicate names',
      'workflows:\n- { id: a, task: t }\n- { id: b, task: t, depends_on: [a, a] }',
      ['3 error duplicate_dependency'],
    ],
    ['itself', 'workflows:\n- { id: a, task: t, depends_on: a }', ['2 error dependency_cycle']],
    [
      'a cycle',
      'workflows:\n- { id: a, task: t, depends_on: [c] }\n- { id: b, task: t, depends_on: a }\n- { id: c, task: t, depends_on: b }',
      ['2 error dependency_cycle'],
    ],
    ['an empty name', "workflows:\n- { id: a, task: t, depends_on: [''] }", ['2 error invalid_value']],
    ['an empty list is none', 'workflows:\n- { id: a, task: t, depends_on: [] }', []],
    ['no work', 'workflows:\n- { id: a }', ['2 error invalid_value']],
    ['two kinds of work', 'workflows:\n- { id: a, task: t, agent: x }', ['2 error invalid_value']],
    ['run_if', 'workflows:\n- { id: a, task: t, run_if: sometimes }', ['2 error invalid_value']],
    [
      'run_if without dependencies',
      'workflows:\n- { id: a, task: t, run_if: failed }',
      ['2 warning no_effect'],
    ],
    ['an unknown key', 'workflows:\n- { id: a, task: t, depend_on: [] }', ['2 error unknown_key']],
    [
      'stuck_after at the wrong place',
      'workflows:\n- { id: a, task: t, stuck_after: 5s }',
      ['2 error unknown_key'],
    ],
  ])('%s', (_what, text, expected) => expect(codes(text)).toEqual(expected))

  test('the way of a cycle, and what was meant', () => {
    const { problems } = validateJob(
      'workflows:\n- { id: fetch, task: t, depends_on: parse }\n- { id: parse, task: t, depends_on: [fetch, fech] }',
    )
    expect(problems.map(({ message, suggestion }) => [message, suggestion])).toEqual([
      ['workflows depend on each other: fetch → parse → fetch', 'Take one of them out.'],
      ["there is no workflow 'fech' in this job", "Did you mean 'fetch'?"],
    ])
  })

  test('a cycle behind something that can run', () => {
    const { problems } = validateJob(
      'workflows:\n- { id: r, task: t }\n- { id: a, task: t, depends_on: [r, b] }\n- { id: b, task: t, depends_on: a }',
    )
    expect(problems.map(({ message }) => message)).toEqual(['workflows depend on each other: a → b → a'])
  })

  test('names that are not registered', () => {
    const registry = {
      tasks: new Map([['resize', resize]]),
      agents: new Map(),
      workflows: new Map([['crawl', crawl]]),
    }
    const text = 'workflows:\n- { id: a, task: resise }\n- { id: b, workflow: crawl }\n- { id: c, agent: x }'
    expect(
      validateJob(text, { registry }).problems.map(({ code, suggestion }) => [code, suggestion]),
    ).toEqual([
      ['unknown_task', "Did you mean 'resize'?"],
      ['unknown_agent', 'Register it, or check the name.'],
    ])
  })

  test('a chain of a thousand is no cycle', () => {
    const workflows = Array.from({ length: 1_001 }, (_, i) => ({
      id: `w${i}`,
      task: 't',
      ...(i > 0 && { dependsOn: [`w${i - 1}`] }),
    }))
    expect(job({ workflows }).model.workflows).toHaveLength(1_001)
  })
})
