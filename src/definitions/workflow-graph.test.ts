import { expect, test } from 'vitest'
import { loadWorkflow, workflow } from './workflow.ts'
import { graph } from './workflow-graph.ts'

test('a graph shows nodes, fan-outs and joins with their limits', () => {
  const definition = loadWorkflow(`
name: research
timeout: 30m
actions:
  fetch: { kind: http_request, url: "'https://a.example/' + branch.item", execution: { timeout: 1m, on_timeout: retry } }
nodes:
  - { id: plan, action_id: plan_topics }
  - { id: read, action_id: fetch, timeout: 90s }
  - { id: write }
transitions:
  - { id: fan, from: plan, to: read, foreach: { collection: state.topics, item_var: topic }, max_parallel: 10 }
  - { id: join, from: read, to: write, synchronization: { strategy: { m_of_n: 2 }, sibling_group: fan, timeout: 2m,
      on_timeout: proceed_with_available, merge: { target: state.pages } } }
  - { from: write, to: plan, priority: 1, condition: size(state.pages) < 3, loop: { max_iterations: 5 } }
start: plan
`)
  expect(graph(definition)).toBe(`---
title: "research (≤ 30m, cancel_all)"
---
flowchart TD
  start(( )) --> n0
  n0["plan<br/>plan_topics"]
  n1["read<br/>GET 'https://a.example/' + branch.item<br/>≤ 1m30s, retry × 3"]
  n2["write"]
  n0 -- "for each topic of state.topics, 10 at a time" --> n1
  j1{{"2 of fan<br/>≤ 2m, then proceed_with_available<br/>append into state.pages"}}
  n1 --> j1
  j1 --> n2
  n2 -- "priority 1<br/>size#40;state.pages#41; #60; 3<br/>at most 5 times" --> n0
`)
})

test('the default of a join is told where it can be known', () => {
  const text = (fanOut: string) => `
name: w
nodes: [{ id: a }, { id: b, timeout: 10s }, { id: c }]
transitions:
  - { id: fan, from: a, to: b, ${fanOut} }
  - { from: b, to: c, synchronization: { strategy: all, sibling_group: fan } }`
  expect(graph(loadWorkflow(text('spawn_count: 4')))).toContain('all of fan<br/>≤ 1m, then fail')
  expect(graph(loadWorkflow(text('foreach: { collection: state.l }')))).toContain('≤ by branches, then fail')
})

test('no label leaves its quotes', () => {
  const drawn = graph(
    workflow({
      name: 'a "name"\n---\nevil',
      timeout: null,
      nodes: [{ id: '"]; click x "javascript:alert(1)" <script>' }, { id: 'b'.repeat(200) }],
      transitions: [
        {
          from: '"]; click x "javascript:alert(1)" <script>',
          to: 'b'.repeat(200),
          condition: '"--> n1" == "|"',
          loop: { maxIterations: 1 },
        },
      ],
    }),
  )
  expect(drawn.split('\n')[1]).toBe('title: "a \\"name\\"\\n---\\nevil (no limit, cancel_all)"')
  for (const line of drawn.split('\n').slice(4)) {
    expect(line.replace(/"[^"]*"/g, '')).toMatch(/^[\sa-z0-9>()[\]{}-]*$/)
    expect(line).not.toContain('<script>')
  }
  expect(drawn).toContain(`n1["${'b'.repeat(80)}…"]`)
})
