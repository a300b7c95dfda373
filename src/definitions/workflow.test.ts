import { describe, expect, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import { agent } from './agent.ts'
import { DefinitionError, formatProblem } from './problem.ts'
import { task } from './task.ts'
import type { WorkflowDefinition } from './workflow.ts'
import { loadWorkflow, validateWorkflow, workflow } from './workflow.ts'
import { contentHash } from './workflow-model.ts'
import { checkNames } from './workflow-names.ts'

/** DESIGN.md section 7, as it stands. */
const research = `
name: research
timeout_ms: 3600000            # on_timeout: cancel_all
actions:
  fetch: { kind: http_request, url: "'https://a.example/' + branch.item", execution: { timeout_ms: 60000, on_timeout: retry, retry_limit: 3 } }
nodes:
  - { id: plan, action_id: plan_topics }      # a registered task of that name
  - { id: read, action_id: fetch, timeout_ms: 120000 }
  - { id: write, action_id: summarize, input: { pages: state.pages } }
transitions:
  - { id: fan, from: plan, to: read, foreach: { collection: state.topics, item_var: topic }, max_parallel: 10 }
  - { from: read, to: write, synchronization: { strategy: all, sibling_group: fan, timeout_ms: 120000, on_timeout: proceed_with_available,
      merge: { source: _branch.output, target: state.pages, strategy: append } } }
`

describe('the keys of the seed', () => {
  test('are valid as they stand', () => {
    const { definition, problems } = validateWorkflow(research, { file: 'research.yml' })
    expect(problems.map(formatProblem)).toEqual([])
    expect(definition!.model).toEqual({
      format: 1,
      name: 'research',
      timeoutMs: 3_600_000,
      onTimeout: 'cancel_all',
      inherit: false,
      start: 'plan',
      actions: {
        fetch: {
          kind: 'http_request',
          method: 'GET',
          url: "'https://a.example/' + branch.item",
          headers: {},
          execution: { timeoutMs: 60_000, onTimeout: 'retry', retryLimit: 3 },
        },
        plan_topics: { kind: 'task', task: 'plan_topics', execution: {} },
        summarize: { kind: 'task', task: 'summarize', execution: {} },
      },
      nodes: [
        { id: 'plan', actionId: 'plan_topics' },
        { id: 'read', actionId: 'fetch', timeoutMs: 120_000 },
        { id: 'write', actionId: 'summarize', input: { pages: 'state.pages' } },
      ],
      transitions: [
        {
          id: 'fan',
          from: 'plan',
          to: 'read',
          priority: 0,
          foreach: { collection: 'state.topics', itemVar: 'topic' },
          group: 'fan',
          maxParallel: 10,
        },
        {
          id: 'read->write',
          from: 'read',
          to: 'write',
          priority: 0,
          synchronization: {
            strategy: 'all',
            siblingGroup: 'fan',
            timeoutMs: 120_000,
            onTimeout: 'proceed_with_available',
            onBranchFailure: 'fail',
            late: 'finish',
            merge: { source: '_branch.output', target: 'state.pages', strategy: 'append' },
          },
        },
      ],
    })
  })

  test('a parent that calls a workflow, in JSON', () => {
    const text = JSON.stringify({
      name: 'parent',
      timeout_ms: 3_600_000,
      on_timeout: 'fail',
      actions: {
        research_action: {
          kind: 'workflow_call',
          implementation: { workflow_def_id: 'research-workflow' },
          execution: { timeout_ms: null },
        },
      },
      nodes: [{ id: 'ask', action_id: 'research_action', timeout_ms: 1_800_000, on_timeout: 'fail' }],
    })
    const { model, warnings } = loadWorkflow(text)
    expect(warnings).toEqual([])
    expect(model.actions.research_action).toEqual({
      kind: 'workflow_call',
      workflow: 'research-workflow',
      execution: { timeoutMs: null },
    })
    expect(model.nodes[0]).toMatchObject({ timeoutMs: 1_800_000, onTimeout: 'fail' })
  })

  test('every strategy of joins and merges', () => {
    for (const [strategy, expected] of [
      ['all', 'all'],
      ['any', 'any'],
      ['{ m_of_n: 2 }', { mOfN: 2 }],
    ]) {
      for (const merge of ['append', 'collect', 'merge_object', 'keyed_by_branch', 'last_wins']) {
        const { model } = loadWorkflow(`
name: w
nodes: [{ id: a }, { id: b }, { id: c }]
transitions:
  - { id: fan, from: a, to: b, spawn_count: 3 }
  - { from: b, to: c, synchronization: { strategy: ${strategy}, sibling_group: fan, on_timeout: fail,
      merge: { source: "_branch.output", target: "state.results", strategy: ${merge} } } }`)
        expect(model.transitions[1]!.synchronization).toMatchObject({
          strategy: expected,
          onBranchFailure: strategy === 'all' ? 'fail' : 'settle',
          merge: { strategy: merge },
        })
      }
    }
  })
})

describe('TypeScript and text', () => {
  const planTopics = task({
    name: 'plan_topics',
    kind: 'llm',
    attemptTimeout: '5m',
    run: () => ({ topics: [] }),
  })
  const summarize = task({ name: 'summarize', run: (input: { pages: string[] }) => input.pages.join() })

  const definition = workflow({
    name: 'research',
    timeout: '1h',
    actions: {
      plan_topics: { kind: 'task', task: 'plan_topics' },
      fetch: {
        kind: 'http_request',
        url: "'https://a.example/' + branch.item",
        execution: { timeout: '1m', onTimeout: 'retry', retryLimit: 3 },
      },
      summarize: { kind: 'task' },
    },
    nodes: [
      { id: 'plan', actionId: 'plan_topics' },
      { id: 'read', actionId: 'fetch', timeout: { minutes: 2 } },
      { id: 'write', actionId: 'summarize', input: { pages: 'state.pages' } },
    ],
    transitions: [
      {
        id: 'fan',
        from: 'plan',
        to: 'read',
        foreach: { collection: 'state.topics', itemVar: 'topic' },
        maxParallel: 10,
      },
      {
        from: 'read',
        to: 'write',
        synchronization: {
          strategy: 'all',
          siblingGroup: 'fan',
          timeout: 120_000,
          onTimeout: 'proceed_with_available',
          merge: { source: '_branch.output', target: 'state.pages', strategy: 'append' },
        },
      },
    ],
  })

  test('become the same model, with the same hash', () => {
    const loaded = loadWorkflow(research)
    expect(definition.model).toEqual(loaded.model)
    expect(definition.hash).toBe(loaded.hash)
    expect(definition.hash).toMatch(/^[0-9a-f]{64}$/)
    expect(loadWorkflow(research.replace('120000', '120001')).hash).not.toBe(definition.hash)
  })

  test('the hash is of the content, not of the order of keys', () => {
    const { model } = definition
    expect(contentHash(Object.fromEntries(Object.entries(model).toReversed()))).toBe(definition.hash)
    expect(contentHash(JSON.parse(JSON.stringify(model)))).toBe(definition.hash)
  })

  test('definitions stand as actions, and are known to be used', () => {
    const writer = agent({ name: 'writer', run: async () => 1 })
    const parent = workflow({
      name: 'parent',
      actions: { planTopics, summarize, child: definition, writer },
      nodes: [
        { id: 'a', actionId: 'planTopics', timeout: '2m' },
        { id: 'b', actionId: 'child', timeout: '30m' },
        { id: 'c', actionId: 'writer' },
        { id: 'd', actionId: 'summarize' },
      ],
      transitions: [
        { from: 'a', to: 'b' },
        { from: 'b', to: 'c' },
        { from: 'c', to: 'd' },
      ],
    })
    expect(parent.model.actions).toEqual({
      planTopics: { kind: 'task', task: 'plan_topics', work: 'llm', execution: {} },
      summarize: { kind: 'task', task: 'summarize', execution: {} },
      child: { kind: 'workflow_call', workflow: 'research', execution: {} },
      writer: { kind: 'agent', agent: 'writer', execution: {} },
    })
    expect(parent.uses).toEqual({ tasks: [planTopics, summarize], agents: [writer], workflows: [definition] })
    expect(JSON.parse(JSON.stringify(parent.model))).toEqual(parent.model)
  })

  test('ids of nodes, actions and groups are checked by their types', () => {
    const broken = () =>
      workflow({
        name: 'w',
        actions: { known: { kind: 'task' } },
        nodes: [
          { id: 'a', actionId: 'known' },
          // @ts-expect-error there is no such action
          { id: 'b', actionId: 'unknown' },
        ],
        transitions: [
          { id: 'fan', from: 'a', to: 'b', spawnCount: 2 },
          // @ts-expect-error there is no such node
          { id: 'back', from: 'b', to: 'x' },
          // @ts-expect-error no transition fans out under that name
          { id: 'join', from: 'b', to: 'a', synchronization: { strategy: 'all', siblingGroup: 'fam' } },
        ],
      })
    expect(broken).toThrow(DefinitionError)
    expectTypeOf(
      workflow({ name: 'w', input: z.object({ n: z.number() }), nodes: [{ id: 'a' }] }),
    ).toEqualTypeOf<WorkflowDefinition<{ n: number }>>()
  })

  test('problems of TypeScript name the path in its spelling', () => {
    try {
      workflow({ name: 'w', nodes: [{ id: 'a', timeout: -1, onTimout: 'fail' } as never] })
      expect.unreachable()
    } catch (error) {
      expect(error).toBeInstanceOf(DefinitionError)
      expect((error as DefinitionError).code).toBe('invalid_definition')
      expect((error as DefinitionError).message).toBe(
        [
          'workflow w has 2 problems:',
          "error: nodes[0].timeout: '-1' is not a valid duration: it must be longer than zero",
          "error: nodes[0].onTimout: is not a key here\n  Did you mean 'onTimeout'?",
        ].join('\n'),
      )
    }
  })
})

describe('durations in text', () => {
  const timeoutOf = (line: string) => {
    const { definition, problems } = validateWorkflow(`name: w\n${line}\nnodes: [{ id: a }]`)
    return definition ? definition.model.timeoutMs : problems[0]!.message
  }
  test.each([
    ['', 3_600_000],
    ['timeout: 90s', 90_000],
    ['timeout: 1h30m', 5_400_000],
    ['timeout: { minutes: 5 }', 300_000],
    ['timeout_ms: 5', 5],
    ['timeout_secs: 5', 5_000],
    ['timeout_seconds: 1.5', 1_500],
    ['timeout_ms: null', null],
    ['timeout: null', null],
    ['timeout: ~', null],
  ])('%s is %o', (line, ms) => expect(timeoutOf(line)).toBe(ms))

  test.each([
    ['timeout: 90', '90 has no unit'],
    ['timeout_ms: 5m', 'must be a number, since the key names the unit'],
    ['timeout_ms: 0', 'longer than zero'],
    ['timeout_ms: -5', 'longer than zero'],
    ['timeout_ms: .nan', 'NaN'],
    ['timeout: soon', 'not a valid duration'],
    ['timeout: 401d', 'the longest is 400 days'],
    ['timeout: true', 'not a valid duration'],
    ['timeout: 5m\ntimeout_ms: 5', 'say the same thing twice'],
  ])('%s is refused', (line, why) => expect(timeoutOf(line)).toContain(why))
})

describe('names that are not registered', () => {
  const plan = task({ name: 'plan_topics', run: () => 1 })
  const registry = { tasks: new Map([[plan.name, plan]]) }

  test('are told where they stand, with what was meant', () => {
    const { problems } = validateWorkflow(research.replace('plan_topics', 'plan_topic'), {
      file: 'r.yml',
      registry,
    })
    expect(problems.map(formatProblem)).toEqual([
      "r.yml:7:28: error: nodes[0].action_id: there is no task 'plan_topic'\n  Did you mean 'plan_topics'?",
      "r.yml:9:29: error: nodes[2].action_id: there is no task 'summarize'\n  Register it, or check the name.",
    ])
  })

  test('are found again whenever they are asked for', () => {
    const definition = loadWorkflow(research, { file: 'r.yml' })
    const codes = () => checkNames(definition.model, registry).map(({ code, line }) => [code, line])
    expect(codes()).toEqual([['unknown_task', 9]])
    expect(codes()).toEqual([['unknown_task', 9]])
    expect(checkNames(definition.model, {})).toEqual([])
  })

  test('a name of an agent is recognized', () => {
    const agents = new Map([['summarize', agent({ name: 'summarize', run: async () => 1 })]])
    const { problems } = validateWorkflow(research, { registry: { tasks: registry.tasks, agents } })
    expect(problems[0]!.suggestion).toContain('There is an agent of that name')
  })
})
