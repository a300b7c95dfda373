// The graph of a map-reduce, run without anything around it.
import { describe, expect, test } from 'vitest'
import { loadMapreduce } from '../definitions/mapreduce.ts'
import { shapeOf } from '../definitions/mapreduce-outline.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'
import { GraphMachine } from './fixtures/graph-machine.ts'
import { mapreduceGraph } from './mapreduce-graph.ts'

function machine(more = '', maxParallel = 2) {
  const { model } = loadMapreduce(`
name: each
mode: mapreduce
map:
  input: { items: [1, 2, 3] }
  max_parallel: ${maxParallel}
  agent_template:
    - shell: "true"
${more}`)
  return new GraphMachine(planWorkflow(mapreduceGraph(shapeOf(model))))
}

const ids = ['item-0', 'item-1', 'item-2']
const done = { status: 'successful', stop: null }

describe('a map-reduce as a graph', () => {
  test('lists the items, works on so many at a time, counts and folds them', () => {
    const run = machine('setup:\n  - shell: "true"\nreduce:\n  - shell: "true"\nmerge:\n  - shell: "true"')
    expect(run.works).toEqual(['setup'])
    run.complete('setup', null)
    run.complete('items', { ids })
    expect(run.works).toEqual(['item.0', 'item.1'])
    run.complete('item.1', done)
    expect(run.works).toEqual(['item.0', 'item.2'])
    run.complete('item.0', done)
    run.complete('item.2', done)
    run.complete('tally', { ids: [] })
    run.complete('reduce', null)
    run.complete('merge', null)
    expect(run.run.end?.status).toBe('completed')
  })

  test('D3: an item that says so stops everything, and what it says is why', () => {
    const run = machine()
    run.complete('items', { ids })
    run.complete('item.0', { status: 'timed_out', stop: 'item-0 timed out and timeout_action is fail' })
    expect(run.run.end).toMatchObject({
      status: 'failed',
      failure: { code: 'stopped', message: expect.stringMatching(/item-0/) },
    })
    expect(run.works).not.toContain('tally')
  })

  test('D3: also the last of them, after which there is nothing to stop', () => {
    const run = machine('reduce:\n  - shell: "true"')
    run.complete('items', { ids })
    for (const i of [0, 1]) run.complete(`item.${i}`, done)
    run.complete('item.2', { status: 'timed_out', stop: 'item-2 timed out and timeout_action is fail' })
    expect(run.run.end).toMatchObject({
      status: 'failed',
      failure: { code: 'stopped', message: expect.stringMatching(/item-2/) },
    })
    expect(run.works).toEqual([])
  })

  test('an item that the store stopped is one that failed: the others go on', () => {
    const run = machine()
    run.complete('items', { ids })
    run.fail('item.0')
    run.complete('item.1', done)
    run.complete('item.2', done)
    expect(run.works).toEqual(['tally'])
  })

  test('where the store stopped every one of them, that is counted too', () => {
    const run = machine()
    run.complete('items', { ids })
    for (const i of [0, 1, 2]) run.fail(`item.${i}`)
    expect(run.works).toEqual(['tally'])
  })

  test('nothing to work on is no failure', () => {
    const run = machine()
    run.complete('items', { ids: [] })
    run.complete('tally', { ids: [] })
    expect(run.run.end?.status).toBe('completed')
  })

  test('items that are to be worked on once more are, before anything is folded', () => {
    const run = machine('reduce:\n  - shell: "true"', 5)
    run.complete('items', { ids })
    for (const i of [0, 1, 2]) run.complete(`item.${i}`, done)
    run.complete('tally', { ids: ['item-1'] })
    expect(run.works).toEqual(['item.0'])
    run.complete('item.0', done)
    run.complete('tally', { ids: [] })
    expect(run.works).toEqual(['reduce'])
  })
})
