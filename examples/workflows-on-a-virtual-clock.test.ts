// How a program that uses curfew tests its workflows and jobs; these are the ones of the examples beside this file.
// A task is found by its name, so a test gives a workflow fakes of the same names. Hours pass in milliseconds.

import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { WorkflowHandle } from '../src/curfew.ts'
import { Curfew, HandlerError, TaskCancelled, TaskFailed, task } from '../src/curfew.ts'
import { VirtualClock } from '../src/testing/testing.ts'
import { films } from './jobs/cancel-one-workflow.ts'
import { nightly } from './jobs/dependencies.ts'
import { publish } from './workflows/child-workflow.ts'
import { research } from './workflows/foreach-and-join.ts'
import { loadResearch } from './workflows/from-yaml.ts'
import { comparePrices } from './workflows/join-in-time.ts'
import { improve } from './workflows/loop.ts'
import { approve } from './workflows/quorum.ts'
import { firstAnswer } from './workflows/race.ts'
import { answer } from './workflows/retry-on-timeout.ts'
import { processOrder } from './workflows/sequential.ts'
import { countWords } from './workflows/shell-and-http.ts'

let clock: VirtualClock
let curfew: Curfew
/** What each task was given, and when, in seconds. */
let calls: { name: string; at: number; input: Record<string, unknown> }[]
/** How long a task with this input takes, in seconds; a negative one fails then. */
let takes: (input: Record<string, unknown>, call: number) => number
/** What it gives back. */
let gives: (name: string, input: Record<string, unknown>) => unknown

function fake(name: string) {
  return task({
    name,
    run: async (input: Record<string, unknown>, { signal }) => {
      calls.push({ name, at: clock.wall() / 1_000, input })
      const seconds = takes(input, calls.length)
      if (seconds !== 0) await clock.sleep({ seconds: Math.abs(seconds) }, signal)
      if (seconds < 0) throw new HandlerError('broken', { retryable: false })
      return gives(name, input)
    },
  })
}

const fakes = [
  ...[
    'check-stock',
    'order-more',
    'ship',
    'plan-topics',
    'read-about',
    'read-page',
    'summarize',
    'ask-price',
  ],
  ...['ask-model', 'ask-provider', 'review', 'write-draft', 'rate-draft', 'translate', 'proofread'],
  ...['extract', 'load', 'tell', 'render', 'upload'],
].map(fake)

const nodesOf = async (run: WorkflowHandle) => (await run.run()).tokens.map(({ node }) => node)
const statusesOf = async (run: WorkflowHandle) => (await run.run()).tokens.map(({ status }) => status)

// Once as they usually run, and once with none of them kept in memory: then every wake-up is a replay from the journal.
describe.each([
  { how: 'in memory', residents: {} },
  { how: 'replayed at every wake-up', residents: { count: 0 } },
])('$how', ({ residents }) => {
  beforeEach(async () => {
    clock = new VirtualClock(0)
    calls = []
    takes = () => 0
    gives = () => null
    curfew = await Curfew.open({ store: ':memory:', tasks: fakes, concurrency: 100, residents, clock })
  })

  afterEach(() => curfew.close())

  test('an order is restocked only where something is missing', async () => {
    gives = (name, { item, count }) =>
      name === 'check-stock' ? { missing: Number(count) - 3 } : `${name} ${item}`
    const small = await curfew.start(processOrder, { item: 'cup', count: 2 })
    const large = await curfew.start(processOrder, { item: 'cup', count: 5 })
    await clock.settle()
    expect(await nodesOf(small)).toEqual(['check', 'ship'])
    expect(await nodesOf(large)).toEqual(['check', 'restock', 'ship'])
    expect(await large.result()).toBe('ship cup')
    expect(calls.find(({ name }) => name === 'order-more')?.input).toEqual({ item: 'cup', count: 2 })
  })

  test('two topics are read at a time, and the pages come in the order of the topics', async () => {
    const topics = ['a', 'b', 'c', 'd', 'e']
    takes = ({ topic }) => (topic === 'a' ? 3 : topic === undefined ? 0 : 1)
    gives = (name, input) =>
      name === 'plan-topics' ? { topics } : name === 'read-about' ? input.topic : input.pages
    const run = await curfew.start(research, { question: 'why?' })
    await clock.advance('1m')
    expect(await run.result()).toEqual(topics)
    const starts = calls.filter(({ name }) => name === 'read-about').map(({ input, at }) => [input.topic, at])
    expect(starts).toEqual([
      ['a', 0],
      ['b', 0],
      ['c', 1],
      ['d', 2],
      ['e', 3],
    ])
  })

  test('half a second after the first price the others are not waited for', async () => {
    const seconds: Record<string, number> = { amber: 10, birch: 10.4, cedar: -2, dune: 11, elm: 30 }
    takes = ({ shop }) => seconds[String(shop)] ?? 0
    gives = (_, { shop }) => shop
    const run = await curfew.start(comparePrices, { shops: Object.keys(seconds) })
    await clock.advance({ seconds: 10.5, milliseconds: -1 })
    expect(await run.status()).toBe('running')
    await clock.advance(1)
    expect(await run.result()).toEqual({ prices: ['amber', 'birch'], asked: 5, late: 2 })
    // What was late was stopped, and a shop that fails is no end of the run.
    expect(await statusesOf(run)).toEqual([
      ...['completed', 'completed', 'completed', 'failed', 'cancelled', 'cancelled', 'completed'],
    ])
  })

  test('an answer that hangs is asked for again, and at last given up', async () => {
    takes = (_, call) => (call <= 2 ? 60 : 0.1)
    gives = () => '42'
    const run = await curfew.start(answer, { question: 'why?' })
    await clock.advance('10s')
    expect(await run.result()).toBe('42')
    expect(calls.map(({ at }) => at)).toEqual([0, 0.3, 0.6])

    takes = () => 60
    const hopeless = await curfew.start(answer, { question: 'why?' })
    await clock.advance('10s')
    await expect(hopeless.result()).rejects.toThrow(TaskFailed)
    const applied = (await hopeless.events()).flatMap(({ policyApplied = [] }) => policyApplied)
    expect(applied).toEqual(['retry', 'retry', 'fail'])
  })

  test('the first good answer wins; the others are stopped or were out before', async () => {
    takes = ({ provider }) => ({ north: -1, east: 12, south: 5 })[String(provider)] ?? 0
    gives = (_, { provider }) => provider
    const run = await curfew.start(firstAnswer)
    await clock.advance('5s')
    expect(await run.result()).toEqual({ answer: 'south' })
    expect((await statusesOf(run)).slice(1, 4)).toEqual(['failed', 'cancelled', 'completed'])
  })

  test('two approvals are enough; a quorum that cannot be met any more fails at once', async () => {
    takes = ({ reviewer, refusing }) =>
      (Number(reviewer) + 1) * 60 * ((refusing as unknown[]).includes(reviewer) ? -1 : 1)
    gives = (_, { reviewer }) => reviewer
    const run = await curfew.start(approve, { refusing: [0] })
    const refused = await curfew.start(approve, { refusing: [0, 1] })
    await clock.advance('2m')
    expect(await run.status()).toBe('running')
    await expect(refused.result()).rejects.toMatchObject({ failure: { code: 'quorum_unreachable' } })
    await clock.advance('1m')
    expect(await run.result()).toEqual({ approvals: { 1: 1, 2: 2 }, asked: 3 })
  })

  test('a draft is written until it is long enough, three times at most', async () => {
    gives = (name, { drafts, text }) =>
      name === 'write-draft'
        ? { drafts: Number(drafts) + 1, text: `draft ${Number(drafts) + 1}` }
        : { words: Number(String(text).at(-1)) }
    const good = await curfew.start(improve, { words: 2 })
    const hopeless = await curfew.start(improve, { words: 9 })
    await clock.settle()
    expect(await good.result()).toEqual({ text: 'draft 2', verdict: 'good' })
    expect(await hopeless.result()).toEqual({ text: 'draft 3', verdict: 'too short' })
  })

  test('a child that takes longer than its node allows is stopped; the others are published', async () => {
    takes = ({ to }) => (to === 'fr' ? 60 : 0.4)
    gives = (name, { text, to }) => `${text} ${to ?? name}`
    const run = await curfew.start(publish, { text: 'poem', languages: ['en', 'fr'] })
    await clock.advance({ seconds: 1, milliseconds: -1 })
    expect(await run.status()).toBe('running')
    await clock.advance(1)
    expect(await run.result()).toEqual({ texts: ['poem en proofread'], missing: 1 })
    const { tasks } = await curfew.list({ parent: run.id, status: 'timed_out' })
    expect(tasks).toMatchObject([{ kind: 'workflow', timeoutKind: 'workflow', timeoutMs: 1_000 }])
  })

  test('the workflow of a file runs with the tasks of this program', async () => {
    takes = ({ topic }) => (topic === 'fire' ? 60 : 0)
    gives = (name, input) => (name === 'plan-topics' ? input : name === 'read-page' ? input.topic : input)
    const run = await curfew.start(await loadResearch(), { topics: ['tea', 'fire', 'cups'] })
    await clock.advance('1s')
    expect(await run.result()).toEqual({ pages: ['tea', 'cups'], missing: 1 })
    expect(calls.filter(({ input }) => input.topic === 'fire').map(({ at }) => at)).toEqual([0, 0.5])
  })

  test('a job runs what depends on what, and its followers by how that ended', async () => {
    takes = ({ into }) => (into === 'broken' ? -1 : 0)
    gives = (_, { text = 'done' }) => text
    const good = await curfew.submit(nightly('shop'))
    const bad = await curfew.submit(nightly('broken'))
    const fast = await curfew.submit(nightly('broken', true))
    await clock.advance('1m')
    const ends = async (handle: typeof good) =>
      (await handle.workflows()).map(({ id, status }) => `${id} ${status}`)
    expect(await good.result()).toMatchObject({ report: 'all is well', alarm: null, clean: 'swept' })
    await expect(bad.result()).rejects.toThrow('workflow load failed')
    const expected = [
      'extract completed',
      'load failed',
      'report cancelled',
      'alarm completed',
      'clean completed',
    ]
    expect(await ends(bad)).toEqual(expected)
    expect(await ends(fast)).toEqual(expected)
  })

  test('a cancelled workflow takes those along that wait for it, and nothing else', async () => {
    takes = ({ seconds = 0 }) => Number(seconds)
    gives = (name, { film }) => `${name} ${film}`
    const handle = await curfew.submit(films)
    await clock.advance(100)
    expect(await handle.workflow('render-long').cancel({ requestId: 'once' })).toBe('cancelled')
    expect(await handle.workflow('render-long').cancel({ requestId: 'once' })).toBe('cancelled')
    const stopped = handle.workflow('render-long').cancelled()
    await clock.advance('1s')
    expect(await stopped).toMatchObject({ success: true, ledger: [{ name: 'render', receipt: 'aborted' }] })
    await expect(handle.result()).rejects.toThrow(TaskCancelled)
    expect(await handle.workflow('upload-short').result()).toBe('upload short')
    expect(calls.map(({ input }) => input.film)).toEqual(['long', 'short', 'short'])
  })
})

test('the warnings of the examples are none: what waits for the world outside has a limit', async () => {
  const all = [
    processOrder,
    research,
    comparePrices,
    answer,
    firstAnswer,
    approve,
    improve,
    publish,
    countWords,
  ]
  expect([...all, await loadResearch()].flatMap(({ warnings }) => warnings)).toEqual([])
})
