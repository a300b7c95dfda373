/** What those who look after a manager ask it: whether it lives, whether it may decide, and what it has counted. */
import { expect } from 'vitest'
import { tcpProxy } from '../scripts/acceptance/tcp-proxy.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew } from './curfew.ts'
import { agent, task } from './curfew.ts'

function worksOf(gates: Gates) {
  const echo = task({ name: 'echo', queue: 'quick', run: (value: unknown) => value })
  const fails = task({ name: 'fails', run: () => Promise.reject(new Error('no')) })
  const hold = task({
    ...{ name: 'hold', grace: '1s' },
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const asks = agent({ name: 'asks', run: (_: null, ctx) => ctx.waitForSignal('go') })
  return { tasks: [echo, fails, hold], agents: [asks], echo, fails, hold, asks }
}

async function get(manager: Curfew | string, path: string) {
  const response = await fetch(`${typeof manager === 'string' ? manager : manager.url}${path}`)
  return {
    status: response.status,
    type: response.headers.get('content-type') ?? '',
    text: await response.text(),
  }
}

interface Series {
  name: string
  labels: Record<string, string>
  value: number
}

/** The text format of Prometheus, whole: a line that is none of it is an error. */
function parse(text: string): { types: Map<string, string>; series: Series[] } {
  const types = new Map<string, string>()
  const series: Series[] = []
  expect(text.endsWith('\n')).toBe(true)
  for (const line of text.split('\n').filter(Boolean)) {
    const comment = /^# (HELP|TYPE) ([a-z_]+) (.+)$/.exec(line)
    if (comment) {
      if (comment[1] === 'TYPE') types.set(comment[2] as string, comment[3] as string)
      continue
    }
    const match = /^([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)$/.exec(line)
    if (!match) throw new Error(`no line of a metric: ${line}`)
    const labels = [...(match[2] ?? '').matchAll(/([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)/g)]
    expect(labels.map(([whole]) => whole).join('')).toBe(match[2] ?? '')
    const pairs = labels.map(([, key, value]) => [key, value])
    series.push({ name: match[1] as string, labels: Object.fromEntries(pairs), value: Number(match[3]) })
  }
  return { types, series }
}

async function metrics(manager: Curfew | string) {
  const { text, status, type } = await get(manager, '/metrics')
  expect([status, type]).toEqual([200, expect.stringContaining('text/plain')])
  const { types, series } = parse(text)
  const sum = (name: string, labels: Record<string, string> = {}) =>
    series
      .filter(
        (one) =>
          one.name === name && Object.entries(labels).every(([key, value]) => one.labels[key] === value),
      )
      .reduce((total, { value }) => total + value, 0)
  return { types, series, sum }
}

onEachWire('a manager that is looked after', (test, kind) => {
  test('is alive and ready, until it closes', async ({ wire }) => {
    const gates = new Gates()
    const works = worksOf(gates)
    const manager = await wire.open({ tasks: works.tasks, agents: works.agents })
    expect(await get(manager, '/healthz')).toMatchObject({ status: 200, text: 'ok\n' })
    expect(await get(manager, '/readyz')).toMatchObject({ status: 200, text: 'ready\n' })
    const url = manager.url as string
    await manager.schedule(works.hold, 'a')
    await until(() => gates.entered.length === 1)
    const closed = manager.close({ drain: true })
    expect(await get(url, '/readyz')).toMatchObject({ status: 503, text: 'not ready\n' })
    expect(await get(url, '/healthz')).toMatchObject({ status: 200 })
    // Whoever waits for what still runs is answered.
    const client = await wire.connect(url)
    expect((await client.serverStatus()).ready).toBe(false)
    gates.open('a')
    await closed
    await expect(get(url, '/healthz')).rejects.toThrow()
  })

  test('counts outcomes, waits, durations, lateness, timeouts, receipts, slots and workers', async ({
    wire,
  }) => {
    const gates = new Gates()
    const works = worksOf(gates)
    const manager = await wire.manager()
    const client = await wire.connect(manager)
    expect((await metrics(manager)).sum('curfew_workers', { state: 'attached' })).toBe(0)
    await wire.work(manager, { tasks: works.tasks, agents: works.agents, concurrency: 4 })
    const before = await metrics(manager)
    expect(before.sum('curfew_slots', { state: 'free' })).toBe(4)
    expect(before.sum('curfew_workers', { state: 'attached' })).toBe(1)

    await (await client.schedule(works.echo, 'a "quoted"\n value')).result()
    await (await client.schedule(works.fails)).result().catch(String)
    await (await client.schedule(works.hold, 'late', { timeout: '2s' })).result().catch(String)
    const cancelled = await client.schedule(works.hold, 'cancelled')
    await until(() => gates.entered.includes('cancelled'))
    const during = await metrics(manager)
    expect(during.sum('curfew_slots', { state: 'taken' })).toBe(1)
    await cancelled.cancel()
    await cancelled.cancelled()
    const asked = await client.start(works.asks, null)
    await asked.signal('go')
    await asked.result()

    const { sum, types } = await metrics(manager)
    expect(sum('curfew_tasks_ended_total', { queue: 'quick', name: 'echo', outcome: 'completed' })).toBe(1)
    expect(sum('curfew_tasks_ended_total', { name: 'fails', outcome: 'failed' })).toBe(1)
    expect(sum('curfew_tasks_ended_total', { name: 'hold', outcome: 'timeout' })).toBe(1)
    expect(sum('curfew_tasks_ended_total', { name: 'hold', outcome: 'cancelled' })).toBe(1)
    expect(sum('curfew_task_timeouts_total', { kind: 'total' })).toBe(1)
    expect(sum('curfew_deadline_lateness_seconds_count', { kind: 'total' })).toBe(1)
    expect(sum('curfew_task_queue_wait_seconds_count', { name: 'hold' })).toBe(2)
    expect(sum('curfew_task_duration_seconds_count', { name: 'echo', outcome: 'completed' })).toBe(1)
    expect(sum('curfew_task_duration_seconds_bucket', { name: 'echo', le: '+Inf' })).toBe(1)
    expect(sum('curfew_receipts_total', { receipt: 'aborted' })).toBe(2)
    expect(sum('curfew_agents_ended_total', { name: 'asks', outcome: 'completed' })).toBe(1)
    expect(sum('curfew_agent_turns_total', { name: 'asks' })).toBeGreaterThan(0)
    expect(sum('curfew_slots', { state: 'taken' })).toBe(0)
    const declared = ['curfew_tasks_ended_total', 'curfew_task_duration_seconds', 'curfew_workers']
    expect(declared.map((name) => types.get(name))).toEqual(['counter', 'histogram', 'gauge'])
    expect(types.get('curfew_attempt_transfers_total')).toBe('counter')
  })

  test('counts what workers bring back when it is started again', async ({ wire }) => {
    const gates = new Gates()
    const { tasks, hold } = worksOf(gates)
    const listen = ['127.0.0.1:0', `unix:${wire.folder}/m.sock`]
    const first = await wire.manager({ listen })
    await wire.work(`unix:${wire.folder}/m.sock`, { tasks })
    const handle = await first.schedule(hold, 'a')
    await until(() => gates.entered.length === 1)
    await first.close()
    const next = await wire.manager({ listen })
    await until(
      async () => (await metrics(next)).sum('curfew_attempt_transfers_total', { answer: 'accepted' }) === 1,
    )
    const [worker] = await next.workers()
    expect(worker).toMatchObject({ running: 1, status: 'attached' })
    gates.open('a', 'kept')
    expect(await next.task(handle.id).result()).toBe('kept')
    expect(gates.entered).toEqual(['a'])
    expect((await next.task(handle.id).view()).attempts).toBe(1)
  })

  if (kind === 'postgres') {
    test('is not ready while its store is away, and again when it is back', async ({ wire }) => {
      const store = new URL(wire.store)
      const proxy = await tcpProxy(`http://${store.host}`)
      wire.atEnd(() => proxy.close())
      store.host = new URL(proxy.url).host
      const { tasks, echo } = worksOf(new Gates())
      const manager = await wire.open({ store: store.href, tasks })
      expect((await get(manager, '/readyz')).status).toBe(200)
      proxy.refuse(true)
      proxy.cut()
      await until(async () => (await get(manager, '/readyz')).status === 503)
      expect((await get(manager, '/healthz')).status).toBe(200)
      expect((await get(manager, '/metrics')).status).toBe(200)
      proxy.refuse(false)
      await until(async () => (await get(manager, '/readyz')).status === 200)
      const client = await wire.connect(manager)
      expect(await (await client.schedule(echo, 1)).result()).toBe(1)
    })
  }
})
