// Definitions from the outside: texts that run as they stand, names that must be known, runs that keep what they began with.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { OpenOptions } from './curfew.ts'
import {
  agent,
  Curfew,
  CurfewError,
  DefinitionError,
  job,
  loadJob,
  loadWorkflow,
  TaskFailed,
  task,
  validateWorkflow,
  workflow,
} from './curfew.ts'
import { SILENT } from './worker/fixtures/process-probe.ts'

const echo = task({ name: 'echo', run: (input: unknown) => input })

/** DESIGN.md section 7, as it stands. */
const RESEARCH = `
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

test('the example of the design is accepted as it stands, and runs, its address aside', async () => {
  expect(validateWorkflow(RESEARCH).problems).toEqual([])
  const server = createServer(({ url }, response) => response.end(`page ${url}`))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const research = loadWorkflow(RESEARCH.replace('https://a.example', `http://127.0.0.1:${port}`))
  const topics = Array.from({ length: 25 }, (_, i) => `t${i}`)
  const curfew = await Curfew.open({
    store: ':memory:',
    logger: SILENT,
    http: { allowPrivate: true },
    workflows: [research],
    tasks: [
      task({ name: 'plan_topics', run: () => ({ topics }) }),
      task({
        name: 'summarize',
        run: ({ pages }: { pages: { body: string }[] }) => pages.map(({ body }) => body).join(),
      }),
    ],
  })
  try {
    const handle = await curfew.start(research, null)
    expect(await handle.result()).toBe(topics.map((topic) => `page /${topic}`).join())
  } finally {
    await curfew.close()
    server.close()
  }
})

onEachStore('the keys of the seed', (test) => {
  test('a workflow that calls another, with every timeout of the hierarchy', async ({ world }) => {
    const child = loadWorkflow(`
name: research-workflow
timeout_ms: 600000  # 10 minutes typical duration
nodes: [{ id: A, action_id: wait }]
`)
    const parent = loadWorkflow(`
name: parent
timeout_ms: 3600000
on_timeout: fail
actions:
  research_action:
    kind: workflow_call
    implementation: { workflow_def_id: research-workflow }
    execution: { timeout_ms: 900000 }
nodes: [{ id: ask, action_id: research_action, timeout_ms: 1800000, on_timeout: fail }]
`)
    const wait = task({
      name: 'wait',
      run: (_: unknown, { signal }) => world.clock.sleep('25m', signal).then(() => 'found'),
    })
    const curfew = await world.open({ tasks: [wait], workflows: [child, parent] })
    const handle = await curfew.start(parent, null)
    await world.clock.advance('25m')
    expect(await handle.result()).toBe('found')
  })

  test('a circle of nodes that each complete, until the timeout of the workflow', async ({ world }) => {
    const circle = loadWorkflow(`
name: circle
timeout_ms: 3600000  # 1 hour
nodes:
  - { id: A, action_id: act1, timeout_ms: 300000 }   # 5 minutes
  - { id: B, action_id: act2, timeout_ms: 600000 }   # 10 minutes
  - { id: C, action_id: act3 }                       # Uses ActionDef default
actions: { act3: { kind: task, execution: { timeout_ms: 400000 } } }
start: A
transitions: [{ from: A, to: B }, { from: B, to: C }, { from: C, to: A }]
`)
    const takes = (name: string) =>
      task({ name, run: (_: unknown, { signal }) => world.clock.sleep('4m', signal) })
    const curfew = await world.open({ tasks: ['act1', 'act2', 'act3'].map(takes), workflows: [circle] })
    const handle = await curfew.start(circle, null)
    await world.clock.advance('59m')
    expect(await tokensOf(handle)).toHaveLength(15)
    await world.clock.advance('2m')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'workflow' })
    expect((await tokensOf(handle)).at(-1)).toEqual(['C', 'timed_out'])
  })

  test('a join with every key, in JSON', async ({ world }) => {
    const spread = (strategy: unknown, merge: string) =>
      loadWorkflow(
        JSON.stringify({
          name: 'spread',
          nodes: [{ id: 'a' }, { id: 'b', action_id: 'echo', input: { n: 'branch.index' } }, { id: 'c' }],
          transitions: [
            { id: 'fan', from: 'a', to: 'b', spawn_count: 3 },
            {
              from: 'b',
              to: 'c',
              synchronization: {
                strategy,
                sibling_group: 'fan',
                timeout_ms: 1_000,
                on_timeout: 'proceed_with_available',
                merge: { source: '_branch.output', target: 'state.results', strategy: merge },
              },
            },
          ],
          output: 'state.results',
        }),
      )
    const curfew = await world.open({ tasks: [echo], concurrency: 1 })
    const results: unknown[] = []
    for (const merge of ['append', 'merge_object', 'keyed_by_branch', 'last_wins'])
      results.push(await (await curfew.start(spread('all', merge), null)).result())
    expect(results).toEqual([
      [{ n: 0 }, { n: 1 }, { n: 2 }],
      { n: 2 },
      { 0: { n: 0 }, 1: { n: 1 }, 2: { n: 2 } },
      { n: 2 },
    ])
    expect(await (await curfew.start(spread({ m_of_n: 2 }, 'append'), null)).result()).toHaveLength(2)
    expect(await (await curfew.start(spread('any', 'append'), null)).result()).toHaveLength(1)
  })
})

onEachStore(
  'a definition that changes',
  (test) => {
    for (const how of ['a new version that is opened', 'a process that died']) {
      test(`does not change the runs in flight, with ${how}`, async ({ world }) => {
        const versions = (version: number) => {
          const child = loadWorkflow(`
name: child
nodes: [{ id: say, action_id: echo, input: { child: ${version}, of: input } }]
`)
          const parent = loadWorkflow(`
name: parent
timeout: ${version}h
actions: { call: { kind: workflow_call, workflow: child, execution: { timeout: ${version}m } } }
nodes:
  - { id: wait, action_id: wait }
  - { id: limited, action_id: limited }
  - { id: call, action_id: call, input: { parent: ${version} } }
  ${version === 2 ? '- { id: new, action_id: echo, input: { new: result } }' : ''}
transitions:
  - { from: wait, to: limited }
  - { from: limited, to: call }
  ${version === 2 ? '- { from: call, to: new }' : ''}
`)
          const { clock } = world
          const wait = task({ name: 'wait', run: (_: unknown, { signal }) => clock.sleep('1m', signal) })
          const limited = task({
            name: 'limited',
            attemptTimeout: version === 1 ? '1m' : '1s',
            run: (_: unknown, { signal }) => clock.sleep('30s', signal),
          })
          return { parent, open: { tasks: [echo, wait, limited], workflows: [child, parent] } }
        }
        const before = versions(1)
        const curfew = await world.open(before.open)
        const { id } = await curfew.start(before.parent, null)
        const started = world.now
        await world.clock.advance('10s')
        if (how === 'a process that died') await world.crash()
        else await world.close(curfew)
        const after = versions(2)
        const reopened = await world.open(after.open)
        const old = reopened.workflow(id)
        const fresh = await reopened.start(after.parent, null)
        await world.runFor(120)
        expect(await old.result()).toEqual({ child: 1, of: { parent: 1 } })
        expect(await old.view()).toMatchObject({ deadlineAt: started + 3_600_000 })
        expect([(await old.run()).hash, (await fresh.run()).hash]).toEqual([
          before.parent.hash,
          after.parent.hash,
        ])
        // The new version has the new limits.
        expect(await errorOf(fresh.result(), TaskFailed)).toMatchObject({
          failure: { code: 'execution_timeout' },
        })
      })
    }
  },
  ['file', 'postgres'],
)

onEachStore('names', (test) => {
  const text = `
name: research
actions:
  ask: { kind: agent, agent: researcher, execution: { timeout: 1m } }
  call: { kind: workflow_call, workflow: chidl, execution: { timeout: 1m } }
nodes:
  - { id: plan, action_id: plan_topic }
  - { id: ask, action_id: ask }
  - { id: call, action_id: call }
  - { id: end, action_id: expert }
transitions: [{ from: plan, to: ask }, { from: ask, to: call }, { from: call, to: end }]
`
  const plan = task({ name: 'plan_topics', run: () => null })
  const expert = agent({ name: 'expert', run: async () => null })
  const child = loadWorkflow('name: child\nnodes: [{ id: a, action_id: ecko }]', { file: 'child.yml' })

  test('that nobody knows are refused at the start, all of them, with their place and what was meant', async ({
    world,
  }) => {
    const research = loadWorkflow(text, { file: 'research.yml' })
    const curfew = await world.open({ tasks: [plan, echo], agents: [expert], workflows: [child] })
    const refused = await errorOf(curfew.start(research, null), DefinitionError)
    expect(refused.message.split('\n')).toEqual([
      'workflow research has 4 problems:',
      "research.yml:4:8: error: actions.ask: there is no agent 'researcher'",
      '  Register it, or check the name.',
      "research.yml:5:9: error: actions.call: there is no workflow 'chidl'",
      "  Did you mean 'child'?",
      "research.yml:7:28: error: nodes[0].action_id: there is no task 'plan_topic'",
      "  Did you mean 'plan_topics'?",
      "research.yml:10:27: error: nodes[3].action_id: there is no task 'expert'",
      '  There is an agent of that name: declare an action { kind: agent, agent: expert }.',
    ])
    expect((await curfew.list()).tasks).toEqual([])
  })

  test('of a workflow that is called, or is part of a job, are refused as well', async ({ world }) => {
    const parent = loadWorkflow(`
name: parent
actions: { call: { kind: workflow_call, workflow: child, execution: { timeout: 1m } } }
nodes: [{ id: call, action_id: call }]
`)
    const curfew = await world.open({ tasks: [plan, echo], workflows: [child, parent] })
    const inJob = loadJob(
      'workflows:\n  - { id: one, workflow: paernt }\n  - { id: two, task: echo }\n  - { id: three, agent: nobody }',
      { file: 'job.yml' },
    )
    const refusals = await Promise.all([
      errorOf(curfew.start(parent, null), DefinitionError),
      errorOf(curfew.submit(child, null), DefinitionError),
      errorOf(curfew.submit(job({ workflows: [{ id: 'one', workflow: 'parent' }] })), DefinitionError),
      errorOf(curfew.submit(inJob), DefinitionError),
    ])
    const ecko = "child.yml:2:29: error: nodes[0].action_id: there is no task 'ecko'\n  Did you mean 'echo'?"
    expect(refusals.map(({ message }) => message.slice(message.indexOf('\n') + 1))).toEqual([
      ecko,
      ecko,
      ecko,
      "job.yml:2:26: error: workflows[0].workflow: there is no workflow 'paernt'\n  Did you mean 'parent'?\n" +
        "job.yml:4:25: error: workflows[2].agent: there is no agent 'nobody'\n  Register it, or check the name.",
    ])
    expect((await curfew.list()).tasks).toEqual([])
  })

  test('may be those of anything', async ({ world }) => {
    const named = task({ name: 'toString', run: (n: number) => n + 1 })
    const inner = loadWorkflow('name: valueOf\nnodes: [{ id: hasOwnProperty, action_id: toString }]')
    const outer = loadWorkflow(`
name: hasOwnProperty
actions: { isPrototypeOf: { kind: workflow_call, workflow: valueOf, execution: { timeout: 1m } } }
nodes: [{ id: toString, action_id: toString }, { id: valueOf, action_id: isPrototypeOf }]
transitions: [{ from: toString, to: valueOf }]
`)
    const curfew = await world.open({ tasks: [named], workflows: [inner, outer] })
    expect(await (await curfew.start(outer, 1)).result()).toBe(2)
  })

  test('a workflow may call itself by its own', async ({ world }) => {
    const down = loadWorkflow(`
name: down
actions: { again: { kind: workflow_call, workflow: down, execution: { timeout: 1m } } }
nodes:
  - { id: here }
  - { id: again, action_id: again, input: input - 1, output: { state.below: result } }
transitions: [{ from: here, to: again, condition: input > 0 }]
output: "has(state.below) ? [input] + state.below : [input]"
`)
    const curfew = await world.open()
    expect(await (await curfew.start(down, 3)).result()).toEqual([3, 2, 1, 0])
  })
})

describe('what is refused', () => {
  const refusal = async (options: Omit<OpenOptions, 'store'>) =>
    (await errorOf(Curfew.open({ store: ':memory:', logger: SILENT, ...options }), CurfewError)).message
  const one = workflow({ name: 'one', actions: { echo }, nodes: [{ id: 'a', actionId: 'echo' }] })
  const same = workflow({ name: 'one', nodes: [{ id: 'a' }] })
  const calls = workflow({ name: 'calls', actions: { one }, nodes: [{ id: 'a', actionId: 'one' }] })

  test('two of one name, wherever they come from', async () => {
    const taken = task({ name: 'echo', run: () => 1 })
    const refusals = [
      await refusal({ workflows: [one, same] }),
      await refusal({ workflows: [same, calls] }),
      await refusal({ workflows: [one], tasks: [taken] }),
      await refusal({ workflows: [one], agents: [agent({ name: 'echo', run: async () => 1 })] }),
      await refusal({ tasks: [task({ name: '$shell', run: () => 1 })] }),
      await refusal({ agents: [agent({ name: '$workflow', run: async () => 1 })] }),
    ]
    expect(refusals).toEqual([
      "Curfew.open: workflows: there are two workflows named 'one'",
      "Curfew.open: workflows: there are two workflows named 'one'",
      "Curfew.open: workflow one was given another 'echo' than the one that is known",
      "Curfew.open: workflow one was given another 'echo' than the one that is known",
      "Curfew.open: the name '$shell' is Curfew's own; give the task or agent another",
      "Curfew.open: the name '$workflow' is Curfew's own; give the task or agent another",
    ])
    // The same one twice is one.
    await (await Curfew.open({ store: ':memory:', workflows: [one, calls, one], tasks: [echo] })).close()
  })

  test('options nobody knows, and values that are none', async () => {
    const refusals = [
      await refusal({ workflow: [one] } as never),
      await refusal({ workflows: [echo as never] }),
      await refusal({ http: { allowprivate: true } as never }),
      await refusal({ http: true as never }),
      await refusal({ http: { allowPrivate: 'localhost' as never } }),
      await refusal({ http: { allowPrivate: ['localhost:80'] } }),
    ]
    expect(refusals).toEqual([
      expect.stringContaining("'workflow' is not an option; there are store, tasks, agents, workflows"),
      'Curfew.open: workflows[0] is not a workflow made with workflow({ … }) or loadWorkflow',
      "Curfew.open: http: 'allowprivate' is not an option; there is allowPrivate",
      'Curfew.open: http must be an object: { allowPrivate }',
      'Curfew.open: http.allowPrivate must be true, false or a list of host names',
      `Curfew.open: http.allowPrivate: "localhost:80" is not a host name, such as 'db.internal'`,
    ])
  })

  test('at the start: options, two versions of one name in one run, too much of everything', async () => {
    const curfew = await Curfew.open({ store: ':memory:', logger: SILENT })
    try {
      const message = async (started: Promise<unknown>) => (await errorOf(started, CurfewError)).message
      expect(await message(curfew.start(one, null, { retries: 3 } as never))).toBe(
        "workflow one: 'retries' is not an option; there are id, key, timeout, trace",
      )
      const both = workflow({
        name: 'both',
        actions: { calls, same },
        nodes: [
          { id: 'a', actionId: 'calls' },
          { id: 'b', actionId: 'same' },
        ],
        transitions: [{ from: 'a', to: 'b' }],
      })
      expect(await message(curfew.start(both, null))).toContain(
        "there are two different workflows named 'one' in one run",
      )
      const line = workflow({
        name: 'line',
        actions: { ls: { kind: 'shell', argv: ['ls'], execution: { timeout: '1m' } } },
        nodes: [{ id: 'a', actionId: 'ls' }],
      })
      expect(await message(curfew.start(line, null))).toContain('Curfew.open({ workflows })')
      const large = workflow({
        name: 'large',
        nodes: Array.from({ length: 100 }, (_, i) => ({
          id: `n${i}`,
          output: { 'state.text': `'${'x'.repeat(4_000)}'` },
        })),
        transitions: Array.from({ length: 99 }, (_, i) => ({ from: `n${i}`, to: `n${i + 1}` })),
      })
      const calling = workflow({
        name: 'calling',
        actions: { large },
        nodes: [{ id: 'a', actionId: 'large' }],
      })
      expect(await message(curfew.start(calling, null))).toMatch(/have \d+ bytes; at most 524288 can be kept/)
      expect(await (await curfew.start(large, 'alone')).result()).toBeNull()
    } finally {
      await curfew.close()
    }
  })
})
