/** Well-formed requests with values that make no sense: refused with a reason, nothing is changed, nobody else notices. */
import { expect } from 'vitest'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew } from './curfew.ts'
import { agent, task, workflow } from './curfew.ts'

const echo = task({ name: 'echo', run: (value: unknown) => value })
const asks = agent({ name: 'asks', run: (_: null, ctx) => ctx.waitForSignal('go') })

/** The text goes out as it is: it may say what no value could. */
async function post(manager: Curfew, method: string, body: unknown) {
  const response = await fetch(
    `${manager.url}/curfew.v1.${method.includes('/') ? method : `JobService/${method}`}`,
    {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    },
  )
  const text = await response.text()
  return {
    status: response.status,
    text,
    body: JSON.parse(text) as { code?: string; message?: string; id?: string },
  }
}

async function setUp(wire: WireWorld) {
  const gates = new Gates()
  const hold = task({
    name: 'hold',
    timeout: '1h',
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const manager = await wire.manager()
  await wire.work(manager, { tasks: [echo, hold], agents: [asks] })
  const client = await wire.connect(manager)
  const held = await client.schedule(hold, 'a')
  await until(() => gates.entered.length === 1)
  const before = await held.view()
  let done = 1
  return {
    ...{ manager, client, held },
    /** Refused, in a sentence, and not as a bug of ours. */
    async refuses(method: string, body: unknown, codes = ['invalid_argument']) {
      const { status, text, body: answer } = await post(manager, method, body)
      const shown = typeof body === 'string' ? body.slice(0, 100) : JSON.stringify(body).slice(0, 200)
      expect([method, shown, status, answer.code]).toEqual([
        method,
        shown,
        status,
        expect.stringMatching(codes.join('|')),
      ])
      expect([method, shown, text.length < 50_000]).toEqual([method, shown, true])
    },
    async worksOn() {
      expect(await (await client.schedule(echo, ++done)).result({ timeout: '20s' })).toBe(done)
      expect((await client.list({ limit: 1_000 })).tasks).toHaveLength(done)
      const { status, deadlineAt } = await held.view()
      expect([status, deadlineAt]).toEqual(['running', before.deadlineAt])
    },
  }
}

const BAD_NUMBERS = ['-1', '0', '"NaN"', '"Infinity"', '"-Infinity"', '1e308', '-1e308', '9007199254740993']

onEachWire('hostile values', (test) => {
  test('numbers that are no times', async ({ wire }) => {
    const { held, refuses, worksOn } = await setUp(wire)
    for (const number of BAD_NUMBERS) await refuses('Extend', `{"id":"${held.id}","byMs":${number}}`)
    const schedule = (fields: string, policy = '{}') =>
      `{"kind":"task","name":"echo","policy":${policy},"tasks":[{"input":"1"}]${fields}}`
    for (const number of BAD_NUMBERS.filter((one) => one !== '0' && one !== '-1')) {
      await refuses('Schedule', schedule(`,"delayMs":${number}`))
      await refuses('Schedule', schedule(`,"startAt":${number}`))
    }
    for (const number of ['-1', '1001', '2147483647', '-2147483648'])
      await refuses('List', `{"limit":${number}}`)
    for (const number of ['-1', '"NaN"', '"Infinity"'])
      await refuses('Wait', `{"id":"${held.id}","timeoutMs":${number}}`)
    await worksOn()
  })

  test('policies that nothing could follow', async ({ wire }) => {
    const { refuses, worksOn } = await setUp(wire)
    const policies = [
      ...['timeoutMs', 'attemptTimeoutMs', 'queueTimeoutMs', 'heartbeatTimeoutMs', 'stuckAfterMs'].flatMap(
        (key) => [0, -1, 0.5, 1.5, 1e15, 1e300, '5s', true, [], {}].map((value) => ({ [key]: value })),
      ),
      ...['graceMs', 'softStopMs', 'retentionMs', 'cleanupMs'].flatMap((key) =>
        [null, -1, 1e300, 'x', 0.1].map((value) => ({ [key]: value })),
      ),
      ...[-1, 1_001, 0.5, 'x', null].map((retries) => ({ retries })),
      ...[1e9, -1e9, 0.5, null].map((priority) => ({ priority })),
      ...[-0.1, 1.1, 'x', 0].map((warnAt) => ({ warnAt })),
      ...['', 'x'.repeat(300), 5, 'a\u0000b'].map((queue) => ({ queue })),
      ...[{ onTimeout: 'explode' }, { atMostOnce: 1 }, { backoff: 5 }, { backoff: {} }, { nothing: 1 }],
      ...[
        { backoff: { initialMs: -5, factor: 2, maxMs: 10, jitter: 0 } },
        { origins: { timeout: 'x'.repeat(999) } },
      ],
      ...[
        { backoff: { initialMs: 5, factor: 1e300, maxMs: 1e300, jitter: 7 } },
        { extensions: { baseMs: -1 } },
      ],
      ...[{ trace: { traceparent: 'x' } }, { trace: 5 }, { label: 'x'.repeat(999) }, { boundBy: 'a\u0000' }],
      {
        extensions: {
          baseMs: -1,
          minMs: -1,
          maxGrants: -5,
          warnAtRemaining: 0.5,
          exhaustedGraceMs: 1e300,
          maxDenials: 0,
        },
      },
    ]
    for (const policy of policies)
      await refuses('Schedule', { kind: 'task', name: 'echo', policy, tasks: [{ input: '1' }] })
    await worksOn()
  })

  test('texts that are too long, empty, or hold what no database keeps', async ({ wire }) => {
    const { held, refuses, client } = await setUp(wire)
    const agentHandle = await client.start(asks, null)
    const long = 'x'.repeat(1024 * 1024)
    for (const id of ['', long, 'a\u0000b']) {
      for (const method of [
        'Get',
        'Wait',
        'Extend',
        'Resume',
        'Explain',
        'ListEvents',
        'ListAttempts',
        'GetRun',
      ])
        await refuses(method, { id, byMs: 1, name: 'go', requestId: '' })
      for (const method of ['Cancel', 'CancelWorkflow', 'ListWorkflows', 'WaitWorkflow'])
        await refuses(method, { jobId: id, workflowId: 'a' })
      await refuses('Signal', { id: agentHandle.id, name: id, value: 1 })
      await refuses('GetDeadLetter', { jobId: id, itemId: 'item-0' })
      await refuses('GetDeadLetter', { jobId: 'w_1', itemId: id })
      await refuses('DiscardDeadLetters', { choice: { jobId: id } })
      await refuses('DiscardDeadLetters', { choice: { jobId: 'w_1', itemIds: ['item-0', id] } })
      await refuses('ClaimDeadLetters', { choice: { jobId: 'w_1' }, retryId: id })
      if (id !== '') {
        await refuses('Signal', { id: agentHandle.id, name: 'go', value: 1, requestId: id })
        await refuses('Extend', { id: held.id, byMs: 5, requestId: id })
        await refuses('List', { name: id })
        await refuses('List', { queue: id })
        await refuses('List', { parentId: id })
        await refuses('List', { cursor: id })
        await refuses('List', { cursor: 'garbage' })
        await refuses('List', { kind: id })
        await refuses('List', { timeoutKind: id })
        for (const field of ['jobId', 'state', 'errorType', 'retryId', 'cursor'])
          await refuses('ListDeadLetters', { [field]: id })
        await refuses('Submit', { task: 'echo', key: id })
        await refuses('Submit', { task: id }, ['invalid_argument', 'failed_precondition'])
        await refuses('Submit', { task: 'echo', requestId: id })
        await refuses('Submit', { task: 'echo', timeout: id })
      }
      await refuses('Schedule', { kind: 'task', name: id, policy: {}, tasks: [{ input: '1' }] })
      await refuses('Schedule', { kind: id, name: 'echo', policy: {}, tasks: [{ input: '1' }] })
      await refuses('Schedule', { kind: 'task', name: 'echo', policy: {}, tasks: [{ input: '1', key: id }] })
    }
    for (const id of ['x', long, `t_${'!'.repeat(26)}`, `g_${'0'.repeat(26)}`, `t_${'0'.repeat(25)}\u0000`])
      await refuses('Schedule', { kind: 'task', name: 'echo', policy: {}, tasks: [{ input: '1', id }] })
    await refuses('Schedule', { kind: 'task', name: '$workflow', policy: {}, tasks: [{ input: '1' }] })
    // Plans are shared by their hash: one that is not of its graph would be somebody else's.
    const { model, hash } = workflow({ name: 'graph', nodes: [{ id: 'only' }] })
    const run = (start: object) => {
      const definitions = { workflows: {}, tasks: {}, agents: {} }
      const input = JSON.stringify({ hash, model, definitions, input: null, ...start })
      return { kind: 'agent', name: '$workflow', title: 'graph', policy: { queue: '' }, tasks: [{ input }] }
    }
    await refuses('Schedule', run({ hash: '0'.repeat(64) }))
    await refuses('Schedule', run({ model: { ...model, nodes: [] } }))
    await refuses('Schedule', run({ depth: -1_000 }))
    await refuses('Schedule', run({ definitions: { workflows: { x: {} }, tasks: {}, agents: {} } }))
    await refuses('Schedule', {
      kind: 'agent',
      name: '$job',
      policy: { queue: '' },
      tasks: [{ input: '{}' }],
    })
    await agentHandle.signal('go', 1)
    await agentHandle.result()
    await client.agent(agentHandle.id).cancel()
    expect((await client.list({ kind: 'agent' })).tasks).toHaveLength(1)
    expect((await client.list({ kind: 'task' })).tasks).toHaveLength(1)
  })

  test('values that are too deep, too large, or mean something to JavaScript', async ({ wire }) => {
    const { manager, refuses, worksOn } = await setUp(wire)
    const deep = '['.repeat(100_000) + ']'.repeat(100_000)
    const objects = `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`
    for (const input of [deep, objects, '['.repeat(101) + ']'.repeat(101)]) {
      await refuses('Submit', `{"task":"echo","input":${input}}`)
      await refuses('Signal', `{"id":"g_1","name":"go","value":${input}}`)
      await refuses('Schedule', { kind: 'task', name: 'echo', policy: {}, tasks: [{ input }] })
      await refuses('Schedule', `{"kind":"task","name":"echo","policy":{"backoff":${input}},"tasks":[]}`)
    }
    for (const key of ['__proto__', 'constructor', 'prototype']) {
      const input = `{"a":[{"${key}":{"polluted":true}}]}`
      await refuses('Submit', `{"task":"echo","input":${input}}`)
      await refuses('Signal', `{"id":"g_1","name":"go","value":${input}}`)
      await refuses('Schedule', { kind: 'task', name: 'echo', policy: {}, tasks: [{ input }] })
    }
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
    const big = 'x'.repeat(1024 * 1024)
    await refuses('Submit', { task: 'echo', input: big }, ['resource_exhausted'])
    await refuses(
      'Schedule',
      { kind: 'task', name: 'echo', policy: {}, tasks: [{ input: JSON.stringify(big) }] },
      ['resource_exhausted'],
    )
    const many = Array.from({ length: 501 }, () => ({ input: '1' }))
    await refuses('Schedule', { kind: 'task', name: 'echo', policy: {}, tasks: many }, ['resource_exhausted'])
    for (const input of ['', 'x', '{', 'undefined', 'NaN', '1 2'])
      await refuses('Schedule', {
        kind: 'task',
        name: 'echo',
        policy: {},
        tasks: [{ input: '1' }, { input }],
      })
    // Definitions that grow when they are read, or that are none.
    const bomb = [
      'a: &a [x,x,x,x,x,x,x,x,x]',
      ...'bcdefghi'.split('').map((one, i) => {
        const before = 'abcdefgh'[i]
        return `${one}: &${one} [${Array.from({ length: 9 }, () => `*${before}`).join(',')}]`
      }),
      'workflows: *i',
    ].join('\n')
    for (const definition of [
      bomb,
      'workflows: [',
      `workflows: ${deep}`,
      '\u0000',
      '- 1',
      'workflows: 5',
      `name: ${big}`,
    ])
      await refuses('Submit', { definition })
    await worksOn()
    expect(manager.url).not.toBeNull()
  })
})
