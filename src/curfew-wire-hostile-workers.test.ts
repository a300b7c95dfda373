/** Workers that lie: about who they are, about what they run, about what came of it. */
import { expect } from 'vitest'
import { RogueWorker } from '../scripts/acceptance/rogue-worker.ts'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { agent, CurfewError, task } from './curfew.ts'

const echo = task({ name: 'echo', run: (value: unknown) => value })
/** Of these nobody but the rogue has the code. */
const bait = task({ name: 'bait', timeout: '1m', run: () => null })
const lure = agent({ name: 'lure', run: () => null })
const BAIT = { kind: 'task', name: 'bait', body: {} }
const LURE = { kind: 'agent', name: 'lure', body: {} }
const LONG = 'x'.repeat(1024 * 1024)
/** Only the machine of graphs records events of its own. */
const ODD_EVENTS = [
  { type: 'agent_timed_out', kind: 'agent', failure: null },
  { type: 'task_timed_out', kind: 'total', lateMs: 'x' },
  { type: 'agent_cancelled' },
  { type: 'token_timed_out', timeoutType: {}, policyApplied: null },
]
const ODD_ENDS = [
  7,
  {},
  { status: 'running' },
  { status: 'completed' },
  { status: 'timed_out', timeoutKind: 'x' },
]
const ODD_WAITS = [
  { mode: 'all', steps: [[0, 1]] },
  { mode: 'most', steps: [[0, 1]], left: 1 },
]

async function setUp(wire: WireWorld) {
  const gates = new Gates()
  const hold = task({ name: 'hold', run: (name: string, { signal }) => gates.pass(name, signal) })
  const manager = await wire.manager()
  await wire.work(manager, { tasks: [echo, hold] })
  const client = await wire.connect(manager)
  const held = await client.schedule(hold, 'held')
  await until(() => gates.entered.length === 1)
  let rogues = 0
  return {
    ...{ manager, client, held, gates },
    rogue: () => new RogueWorker(wire, manager, `n_rogue_${++rogues}`),
    /** Somebody who does everything right is served; everything can still be read. */
    async worksOn() {
      expect(await (await client.schedule(echo, 'on')).result({ timeout: '20s' })).toBe('on')
      const { id } = await client.submitNamed({ task: 'echo', input: 'by name' })
      expect(await client.task(id).result({ timeout: '20s' })).toBe('by name')
      expect(await held.view()).toMatchObject({ status: 'running', attempts: 1, progress: null })
      const { tasks } = await client.list({ limit: 1_000 })
      for (const view of tasks) {
        await client.task(view.id).view()
        await client.task(view.id).events()
        await client.task(view.id).explain()
      }
      await client.metrics()
      await client.workers()
    },
  }
}

onEachWire('hostile workers', (test, kind) => {
  test('reports about attempts that are not theirs are stale and change nothing', async ({ wire }) => {
    const { rogue, held, worksOn } = await setUp(wire)
    const one = await rogue().attach({ definitions: [BAIT] })
    const tokens = ['', 'r_garbage', 'a', "' or 1=1 --"]
    if (kind === 'postgres') {
      // Also with the token of somebody else, should it ever learn of it.
      const [row] = await wire.sql(
        `select coalesce(t.token, c.token) as token from curfew.tasks t
          left join curfew.light_claims c on t.id = any(c.ids) where t.id = $1`,
        held.id,
      )
      expect(row?.token).toMatch(/^r_/)
      tokens.push(row?.token as string)
    }
    for (const token of tokens) {
      for (const what of [
        { case: 'completed', value: '"mine"' },
        { case: 'failed', value: { code: 'x', message: 'y' } },
        { case: 'beat', value: { moved: true, progress: { fraction: 0.5 } } },
        { case: 'extend', value: { requestId: 'x', progress: {} } },
        { case: 'overdue', value: {} },
        { case: 'stopped', value: { receipt: 'killed', reason: { code: 'stale', message: 'x' } } },
        { case: 'returned', value: { what: { case: 'output', value: '1' } } },
      ] as const) {
        const reports = [
          { taskId: held.id, token, what },
          { taskId: 't_nobody', token, what },
        ]
        const answer = await one.report({ reports } as never)
        expect([token, what.case, answer]).toEqual([
          token,
          what.case,
          expect.objectContaining({ answers: ['stale', 'stale'] }),
        ])
      }
    }
    await worksOn()
  })

  test('reports of somebody who is not attached, or that say nothing, are refused', async ({ wire }) => {
    const { rogue, held, worksOn } = await setUp(wire)
    const stranger = rogue()
    const reports = [{ taskId: held.id, token: 'x', what: { case: 'overdue', value: {} } }]
    expect(await stranger.report({ reports } as never)).toMatchObject({ code: 'not_attached' })
    expect(await stranger.report({ reports, workerId: LONG } as never)).toBeInstanceOf(CurfewError)
    const one = await rogue().attach()
    expect(await one.report({ reports: [{ taskId: 'x', token: 'y' }] })).toMatchObject({
      code: 'invalid_request',
    })
    const many = Array.from({ length: 3_000 }, () => reports[0])
    expect(await one.report({ reports: many } as never)).toMatchObject({ code: 'too_big' })
    expect(await one.rpc.beat({ workerId: 'n_nobody' })).toMatchObject({ unknown: true })
    await expect(one.rpc.leave({ workerId: 'n_nobody', receipt: 'exploded' })).rejects.toThrow(
      /exited, killed/,
    )
    await one.rpc.leave({ workerId: 'n_nobody', receipt: 'exited' })
    await expect(one.rpc.readJournal({ agentId: 'g_1', token: 't', part: 'secrets' })).rejects.toThrow(/part/)
    expect((await one.rpc.readJournal({ agentId: 'g_1', token: 't', part: 'steps' })).page).toBeUndefined()
    expect(await one.report({ wakes: [{ agentId: 'g_1', rootId: '', token: 'x' }] })).toMatchObject({
      answers: [],
    })
    for (const token of [LONG, 'a\u0000b']) {
      expect(await one.report({ wakes: [{ agentId: 'g_1', rootId: '', token }] })).toMatchObject({
        code: 'invalid_request',
      })
      const what = { case: 'completed', value: '1' }
      expect(await one.report({ reports: [{ taskId: held.id, token, what }] } as never)).toMatchObject({
        code: 'invalid_request',
      })
    }
    await worksOn()
  })

  test('results that cannot be kept fail their task, and can be read about', async ({ wire }) => {
    const { rogue, client, worksOn } = await setUp(wire)
    const one = await rogue().attach({ definitions: [BAIT], concurrency: 50 })
    const deep = '['.repeat(5_000) + ']'.repeat(5_000)
    const outputs = [
      '',
      'not json',
      '{',
      'undefined',
      deep,
      JSON.stringify(LONG),
      '{"__proto__":1}',
      '"\\ud800"',
    ]
    const handles = await client.scheduleMany(
      bait,
      outputs.map((_, i) => i),
    )
    await until(() => one.assignments.length === outputs.length)
    for (const [i, { taskId, token }] of one.assignments.entries()) {
      const value = outputs[i] as string
      const answer = await one.report({ reports: [{ taskId, token, what: { case: 'completed', value } }] })
      // Where all were accepted there are no answers.
      expect([value.slice(0, 20), answer]).toEqual([value.slice(0, 20), { answers: [], turns: [] }])
    }
    for (const [i, { taskId }] of one.assignments.entries()) {
      if (outputs[i] === '"\\ud800"') expect(await client.task(taskId).result()).toBe('\ud800')
      else await expect(client.task(taskId).result()).rejects.toMatchObject({ code: 'task_failed' })
    }
    expect(handles).toHaveLength(outputs.length)
    await worksOn()
  })

  test('failures, progress, details and receipts that make no sense are cut to what does', async ({
    wire,
  }) => {
    const { rogue, client, worksOn } = await setUp(wire)
    const one = await rogue().attach({ definitions: [BAIT], concurrency: 50 })
    await client.scheduleMany(bait, [1, 2, 3, 4, 5, 6])
    await until(() => one.assignments.length === 6)
    const nested = { code: LONG, message: LONG, stack: LONG }
    let cause: object = nested
    for (let i = 0; i < 60; i++) cause = { code: 'c', message: 'm', cause }
    const said = [
      {
        case: 'beat',
        value: { moved: true, details: 'not json', progress: { fraction: Number.NaN, completed: -1 } },
      },
      { case: 'beat', value: { moved: true, details: JSON.stringify(LONG), progress: { total: Infinity } } },
      { case: 'extend', value: { requestId: LONG, progress: { fraction: Number.NaN } } },
      { case: 'failed', value: { ...nested, retryable: true, cause } },
      {
        case: 'stopped',
        value: { receipt: 'vanished', reason: { code: 'nonsense', message: LONG, deadlineAt: Number.NaN } },
      },
      {
        case: 'stopped',
        value: { receipt: 'killed', reason: {}, late: { what: { case: 'output', value: LONG } } },
      },
    ] as const
    for (const [i, { taskId, token }] of one.assignments.entries()) {
      const answer = await one.report({ reports: [{ taskId, token, what: said[i] }] } as never)
      const sense =
        answer instanceof CurfewError
          ? ['invalid_request', 'too_big'].includes(answer.code)
          : answer.answers.length <= 1
      expect([said[i]?.case, answer, sense]).toEqual([said[i]?.case, answer, true])
    }
    await worksOn()
    const failed = await client.task(one.assignments[3]?.taskId as string).view()
    expect(JSON.stringify(failed.failure ?? {}).length).toBeLessThan(100_000)
  })

  test('turns that make no sense are refused, or park their agent alone', async ({ wire }) => {
    const { rogue, client, worksOn } = await setUp(wire)
    const one = await rogue().attach({ definitions: [LURE], turns: 50 })
    for (const text of [
      '',
      'x',
      '{',
      'null',
      '1',
      '[]',
      '{}',
      '{"type":"turn"}',
      '{"type":"turn","agentId":1,"token":"x"}',
    ]) {
      expect([text, await one.report({ turns: [text] })]).toEqual([
        text,
        expect.objectContaining({ code: 'invalid_request' }),
      ])
    }
    const stranger = {
      type: 'turn',
      agentId: 'g_1',
      rootId: 'g_1',
      token: 'r_x',
      seen: 0,
      steps: [],
      ran: [],
      withdrawn: [],
    }
    const answer = await one.report({ turns: [JSON.stringify({ ...stranger, state: { type: 'open' } })] })
    expect(answer).toEqual({ answers: [], turns: ['{"type":"stale"}'] })
    const oddities: object[] = [
      {},
      { steps: null },
      { steps: [null], ran: [], withdrawn: [], seen: 0, state: { type: 'open' } },
      { steps: [{ no: 0, kind: 'task' }], state: { type: 'open' } },
      { steps: [{ no: -5, kind: 'sleep', ms: Number.MAX_VALUE }], state: { type: 'suspended', waits: [] } },
      { steps: [{ no: 0, kind: 'explode' }], state: { type: 'open' } },
      {
        steps: [
          {
            no: 0,
            kind: 'task',
            id: 't_mine',
            name: 'echo',
            input: 'no json',
            policy: { queue: 'default' },
            start: {},
            detached: false,
          },
        ],
        state: { type: 'open' },
      },
      {
        steps: [{ no: 0, kind: 'task', id: 5, name: LONG, input: '1', policy: 7, start: 9, detached: 'x' }],
        state: { type: 'open' },
      },
      { steps: [{ no: 0, kind: 'event', event: 7 }], state: { type: 'open' } },
      ...ODD_EVENTS.map((event) => ({ steps: [{ no: 0, kind: 'event', event }], state: { type: 'open' } })),
      { ran: [{ step: 'x', outcome: null }], state: { type: 'open' } },
      { withdrawn: ['a'], state: { type: 'open' } },
      { seen: 'x', state: { type: 'open' } },
      { state: { type: 'returned', output: 'not json' } },
      { state: { type: 'returned' } },
      { state: { type: 'threw', failure: null } },
      ...ODD_ENDS.map((endsAs) => ({
        state: { type: 'threw', failure: { code: 'x', message: 'y' }, endsAs },
      })),
      ...ODD_WAITS.map((wait) => ({ state: { type: 'suspended', waits: [wait] } })),
      { state: { type: 'exploded' } },
      { state: null },
    ]
    for (let i = 0; i < oddities.length; i++) await client.start(lure, i)
    await until(() => one.turns.length === oddities.length)
    for (const [i, { agentId, rootId, token }] of one.turns.entries()) {
      const base = { type: 'turn', agentId, rootId, token, seen: 0, steps: [], ran: [], withdrawn: [] }
      const said = await one.report({ turns: [JSON.stringify({ ...base, ...oddities[i] })] })
      const sense = said instanceof CurfewError ? said.code === 'invalid_request' : said.turns.length === 1
      expect([oddities[i], said, sense]).toEqual([oddities[i], said, true])
    }
    await worksOn()
  })

  test('introductions that make no sense are refused; what one knows does not spoil what others know', async ({
    wire,
  }) => {
    const { rogue, client, manager, worksOn } = await setUp(wire)
    const labels = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`l${i}`, 'x']))
    const many = Array.from({ length: 20_000 }, (_, i) => ({ kind: 'task', name: `n${i}`, body: {} }))
    for (const hello of [
      { workerId: '' },
      { workerId: LONG },
      { workerId: 'a\u0000b' },
      { session: 0 },
      { session: -1 },
      { concurrency: -1 },
      { concurrency: 1_000_000 },
      { turns: -1 },
      { machine: undefined },
      { machine: { host: LONG } },
      { version: LONG },
      { labels },
      { labels: { a: LONG } },
      { definitions: [{ kind: 'task', name: '', body: {} }] },
      { definitions: [{ kind: 'task', name: LONG, body: {} }] },
      { definitions: [{ kind: 'task', name: 'a\u0000', body: {} }] },
      { definitions: [{ kind: 'bomb', name: 'a', body: {} }] },
      { definitions: many },
      { allQueues: false, queues: ['a\u0000'] },
      { allQueues: false, queues: [LONG] },
      { attempts: Array.from({ length: 50_000 }, () => ({ id: 'x', token: 'y' })) },
    ]) {
      const { error } = await rogue().attach(hello as never)
      const shown = JSON.stringify(hello).slice(0, 60)
      expect([shown, error?.code]).toEqual([
        shown,
        expect.stringMatching(/^(invalid_request|invalid_name|too_big)$/),
      ])
    }
    expect(await manager.workers()).toHaveLength(1)
    // Policies and graphs that are none.
    const odd = [
      { kind: 'task', name: 'echo', body: { timeoutMs: -5 } },
      { kind: 'task', name: 'odd', body: { nothing: true } },
      { kind: 'agent', name: 'odd', body: { queue: 7 } },
      { kind: 'workflow', name: 'odd', body: { nodes: 5 } },
      { kind: 'workflow', name: 'none', body: {} },
    ]
    const one = await rogue().attach({ definitions: odd as never, concurrency: 0, turns: 0 })
    const refused = one.error !== null
    for (const work of [{ task: 'odd' }, { agent: 'odd' }, { workflow: 'odd' }, { workflow: 'none' }])
      await expect(client.submitNamed(work)).rejects.toMatchObject({
        code: expect.stringMatching(/^(invalid|unknown)_/),
      })
    expect([refused, (await client.workers()).length]).toEqual([refused, refused ? 1 : 2])
    // Attempts it never had are not its.
    const liar = await rogue().attach({
      attempts: [{ id: 't_1', token: 'r_1' }],
      turnsHeld: [{ id: 'g_1', token: 'r_2' }],
    })
    const [welcome] = liar.heard
    expect(welcome?.message).toMatchObject({ case: 'welcome', value: { confirmed: [] } })
    await worksOn()
  })

  test('a stream that nobody reads is not waited for by anybody', async ({ wire }) => {
    const { rogue, client, worksOn } = await setUp(wire)
    const one = rogue()
    const stream = one.rpc.attach({
      ...{ workerId: one.workerId, session: 1, version: '0', allQueues: true, concurrency: 20, turns: 0 },
      ...{ protocolMin: 1, protocolMax: 1, definitions: [BAIT as never], machine: { host: 'h' } },
    })
    const iterator = stream[Symbol.asyncIterator]()
    await iterator.next()
    const big = 'x'.repeat(500_000)
    const handles = await client.scheduleMany(
      bait,
      Array.from({ length: 40 }, () => big as never),
    )
    await until(async () => (await client.workers()).some(({ running }) => running === 20))
    await worksOn()
    // What it holds can be cancelled; what it never began is over without it.
    const statuses = await Promise.all(handles.map((handle) => handle.status()))
    expect(statuses.filter((status) => status === 'pending')).toHaveLength(20)
    expect(await handles[statuses.indexOf('pending')]?.cancel()).toBe('pending_cancelled')
    await iterator.return?.()
  })
})
