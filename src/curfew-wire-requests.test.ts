/** I1: what is asked twice is done once: by key, by the ids of the work, by the id of the request. */
import { createClient } from '@connectrpc/connect'
import { expect } from 'vitest'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew, CurfewError } from './curfew.ts'
import { agent, task } from './curfew.ts'
import { JobService } from './wire/gen/curfew/v1/jobs_pb.ts'
import { endpointOf } from './wire/http-client.ts'
import { jsonOf, valueMessage } from './wire/plain.ts'
import { fromConnectError } from './wire/wire-error.ts'

function worksOf(gates: Gates) {
  const echo = task({ name: 'echo', run: (value: unknown) => value })
  const other = task({ name: 'other', run: (value: unknown) => value })
  const hold = task({
    name: 'hold',
    ...{ timeout: '1h', grace: '1s' },
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const asks = agent({
    name: 'asks',
    run: async (count: number, ctx) => {
      const said: unknown[] = []
      for (let i = 0; i < count; i++) said.push(await ctx.waitForSignal('say'))
      return said
    },
  })
  return { tasks: [echo, other, hold], agents: [asks], echo, other, hold, asks }
}

async function setUp(wire: WireWorld, concurrency = 10) {
  const gates = new Gates()
  const works = worksOf(gates)
  const manager = await wire.manager()
  await wire.work(manager, { tasks: works.tasks, agents: works.agents, concurrency })
  const client = await wire.connect(manager)
  return { gates, manager, client, jobs: rpcTo(wire, manager), ...works }
}

/** Requests as they are sent, with the ids one wants. */
function rpcTo(wire: WireWorld, manager: Curfew) {
  const endpoint = endpointOf(manager.url as string)
  wire.atEnd(async () => endpoint.close())
  return createClient(JobService, endpoint.transport)
}

const errorOf = (promise: Promise<unknown>) =>
  promise.then(
    (value) => value,
    (error: unknown) => fromConnectError(error),
  )

onEachWire('requests that come twice', (test) => {
  test('I1: the same key is the same work: again, at once from several, and after its end', async ({
    wire,
  }) => {
    const { manager, client, gates, hold } = await setUp(wire)
    const second = await wire.connect(manager)
    const first = await client.schedule(hold, 'a', { key: 'k' })
    expect(first.existing).toBe(false)
    const again = await client.schedule(hold, 'a', { key: 'k', timeout: '5s' })
    expect([again.id, again.existing]).toEqual([first.id, true])
    const many = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        [client, second, manager][i % 3]?.schedule(hold, 'b', { key: 'c' }),
      ),
    )
    expect(new Set(many.map((handle) => handle?.id)).size).toBe(1)
    expect(many.filter((handle) => !handle?.existing)).toHaveLength(1)
    gates.open('a')
    expect(await first.result()).toBe('a')
    const late = await second.schedule(hold, 'a', { key: 'k' })
    expect([late.id, late.existing, await late.result()]).toEqual([first.id, true, 'a'])
    expect((await client.list({ name: 'hold' })).tasks).toHaveLength(2)
    expect(gates.entered.toSorted()).toEqual(['a', 'b'])
  })

  test('I1: the same key with another input is refused, under another name it is another', async ({
    wire,
  }) => {
    const { client, echo, other } = await setUp(wire)
    const first = await client.schedule(echo, { a: 1, b: 2 }, { key: 'k' })
    const same = await client.schedule(echo, { b: 2, a: 1 }, { key: 'k' })
    expect(same.id).toBe(first.id)
    await expect(client.schedule(echo, { a: 1 }, { key: 'k' })).rejects.toMatchObject({
      code: 'key_conflict',
    })
    const named = client.submitNamed({ task: 'echo', input: { a: 2 }, key: 'k' })
    await expect(named).rejects.toMatchObject({ code: 'key_conflict' })
    expect(await client.submitNamed({ task: 'echo', input: { a: 1, b: 2 }, key: 'k' })).toEqual({
      ...{ id: first.id, kind: 'task', existing: true },
    })
    const elsewhere = await client.schedule(other, { a: 1 }, { key: 'k' })
    expect([elsewhere.id === first.id, elsewhere.existing]).toEqual([false, false])
  })

  test('I1: a key is free again when the record is gone', async ({ wire }) => {
    const { manager, client, echo } = await setUp(wire)
    const first = await client.schedule(echo, 1, { key: 'k' })
    await first.result()
    await manager.close()
    await wire.sql('delete from curfew.tasks where id = $1', first.id)
    const again = await wire.connect(await wire.manager())
    const anew = await again.schedule(echo, 2, { key: 'k' })
    expect([anew.existing, anew.id === first.id]).toEqual([false, false])
    expect((await again.schedule(echo, 2, { key: 'k' })).id).toBe(anew.id)
  })

  test('work that is scheduled twice with the same ids is stored once', async ({ wire }) => {
    const { manager, jobs, client } = await setUp(wire)
    const ids = ['a', 'b'].map((letter) => `t_${'0'.repeat(25)}${letter}`)
    const request = {
      ...{ kind: 'task', name: 'echo', policy: {} },
      tasks: ids.map((id, i) => ({ id, input: `${i}`, ...(i === 1 && { key: 'second' }) })),
    }
    const answers = await Promise.all([
      jobs.schedule(request),
      jobs.schedule(request),
      jobs.schedule(request),
    ])
    for (const { tasks } of [...answers, await jobs.schedule(request)]) {
      expect(tasks.map(({ id, existing }) => [id, existing])).toEqual(ids.map((id) => [id, false]))
    }
    expect((await manager.list({ name: 'echo' })).tasks).toHaveLength(2)
    expect(await Promise.all(ids.map((id) => client.task(id).result()))).toEqual([0, 1])
    // Somebody else's work under the same id is no repetition.
    const stranger = await errorOf(jobs.schedule({ ...request, name: 'other' }))
    expect(stranger).toMatchObject({ code: 'key_conflict' })
    const changed = { ...request, tasks: ids.map((id) => ({ id, input: '"changed"' })) }
    expect(await errorOf(jobs.schedule(changed))).toMatchObject({ code: 'key_conflict' })
    // Nothing of a request that is refused is done.
    const half = {
      ...request,
      tasks: [
        { id: ids[0], input: '0' },
        { id: `t_${'1'.repeat(26)}`, input: '1' },
      ],
    }
    expect(await errorOf(jobs.schedule({ ...half, name: 'other' }))).toMatchObject({ code: 'key_conflict' })
    expect((await manager.list({ name: 'other' })).tasks).toEqual([])
  })

  test('work that is scheduled twice, some of it under keys that were taken, is answered the same', async ({
    wire,
  }) => {
    const { manager, jobs, client, echo } = await setUp(wire)
    const before = await client.schedule(echo, 1, { key: 'taken' })
    const ids = ['a', 'b', 'c', 'd', 'e'].map((letter) => `t_${'0'.repeat(25)}${letter}`)
    const keys = [undefined, 'taken', 'new', 'new', undefined]
    const request = {
      ...{ kind: 'task', name: 'echo', policy: {} },
      tasks: ids.map((id, i) => ({ id, input: '1', ...(keys[i] !== undefined && { key: keys[i] }) })),
    }
    const answers = [await jobs.schedule(request)]
    answers.push(...(await Promise.all([jobs.schedule(request), jobs.schedule(request)])))
    const [a, , c, , e] = ids
    for (const { tasks } of answers) {
      expect(tasks.map(({ id, existing }) => [id, existing])).toEqual([
        ...[
          [a, false],
          [before.id, true],
          [c, false],
          [c, true],
          [e, false],
        ],
      ])
    }
    expect((await manager.list({ name: 'echo' })).tasks).toHaveLength(4)
    const changed = request.tasks.map((task) => (task.key === 'taken' ? { ...task, input: '2' } : task))
    const conflict = await errorOf(jobs.schedule({ ...request, tasks: changed }))
    expect(conflict).toMatchObject({ code: 'key_conflict' })
    const added = [...request.tasks, { id: `t_${'0'.repeat(25)}f`, input: '1' }]
    expect(await errorOf(jobs.schedule({ ...request, tasks: added }))).toMatchObject({ code: 'key_conflict' })
    expect((await manager.list({ name: 'echo' })).tasks).toHaveLength(4)
  })

  test('an agent with a long input that is started twice with the same id is stored once', async ({
    wire,
  }) => {
    const { jobs, client } = await setUp(wire)
    const id = `g_${'0'.repeat(26)}`
    // So long that it does not stand in the row of the agent.
    const input = JSON.stringify({ count: 0, padding: 'x'.repeat(10_000) })
    const request = { kind: 'agent', name: 'asks', policy: {}, tasks: [{ id, input }] }
    await jobs.schedule(request)
    const { tasks } = await jobs.schedule(request)
    expect(tasks).toMatchObject([{ id, existing: false }])
    expect((await client.list({ name: 'asks' })).tasks).toHaveLength(1)
    const changed = { ...request, tasks: [{ id, input: '{}' }] }
    expect(await errorOf(jobs.schedule(changed))).toMatchObject({ code: 'key_conflict' })
  })

  test('a submit that comes twice, also beside the first, starts one', async ({ wire }) => {
    const { manager, jobs } = await setUp(wire)
    const definition = 'workflows: [{ id: a, task: echo, input: 1 }]'
    for (const what of [
      { case: 'task', value: 'echo' },
      { case: 'agent', value: 'asks' },
      { case: 'definition', value: definition },
    ] as const) {
      const request = {
        what,
        requestId: `one ${what.case}`,
        input: valueMessage(what.case === 'agent' ? 1 : null),
      }
      const answers = await Promise.all([jobs.submit(request), jobs.submit(request), jobs.submit(request)])
      answers.push(await jobs.submit(request))
      expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
      expect(answers.map(({ existing }) => existing)).toEqual([false, false, false, false])
      const another = await jobs.submit({ ...request, requestId: 'two' })
      const nameless = [
        await jobs.submit({ ...request, requestId: '' }),
        await jobs.submit({ ...request, requestId: '' }),
      ]
      expect(new Set([...answers, another, ...nameless].map(({ id }) => id)).size).toBe(4)
    }
    expect((await manager.list({ kind: 'job' })).tasks).toHaveLength(4)
    // The id of a request that started something else is no repetition of it.
    const wrong = {
      what: { case: 'task', value: 'other' },
      requestId: 'one task',
      input: valueMessage(1),
    } as const
    expect(await errorOf(jobs.submit(wrong))).toMatchObject({ code: 'key_conflict' })
    const changed = { ...wrong, what: { case: 'task', value: 'echo' } } as const
    expect(await errorOf(jobs.submit(changed))).toMatchObject({ code: 'key_conflict' })
  })

  test('signals, extensions and resumes that come twice have one effect', async ({ wire }) => {
    const { manager, jobs, client, gates, hold, asks } = await setUp(wire)
    const agents = [await client.start(asks, 3), await client.start(asks, 1)]
    const [id = '', elsewhere = ''] = agents.map((handle) => handle.id)
    const say = (value: number, requestId: string) =>
      jobs.signal({ id, name: 'say', value: valueMessage(value), requestId })
    await Promise.all([say(1, 'a'), say(1, 'a'), say(1, 'a')])
    await say(1, 'a')
    await say(2, 'b')
    await say(3, '')
    expect(await agents[0]?.result()).toEqual([1, 2, 3])
    // Another caller's request, to somebody else.
    await jobs.signal({ id: elsewhere, name: 'say', value: valueMessage('mine'), requestId: 'a' })
    expect(await agents[1]?.result()).toEqual(['mine'])

    const task = await client.schedule(hold, 'x')
    await until(() => gates.entered.includes('x'))
    const before = (await task.view()).deadlineAt as number
    const extend = (requestId: string) => jobs.extend({ id: task.id, byMs: 60_000, requestId })
    const answers = await Promise.all([extend('a'), extend('a'), extend('a')])
    answers.push(await extend('a'))
    expect(answers.map(({ deadlineAt }) => (deadlineAt as number) - before)).toEqual([
      60_000, 60_000, 60_000, 60_000,
    ])
    expect((await manager.task(task.id).view()).deadlineAt).toBe(before + 60_000)
    await extend('b')
    await extend('')
    expect((await manager.task(task.id).view()).deadlineAt).toBe(before + 180_000)
    const granted = (await task.events()).filter(({ type }) => /extend/.test(type))
    expect(granted).toHaveLength(3)
    // What was refused was not done: it may be asked again, and is refused again.
    for (let i = 0; i < 2; i++) {
      const resume = () => errorOf(jobs.resume({ id: task.id, requestId: 'r' }))
      const refused = await Promise.all([resume(), resume(), resume()])
      expect(refused.map((error) => (error as CurfewError).code)).toEqual(['refused', 'refused', 'refused'])
      const nobody = { id: 't_nobody', byMs: 1, requestId: 'n' }
      expect(await errorOf(jobs.extend(nobody))).toMatchObject({ code: 'not_found' })
    }
    gates.open('x')
    expect(jsonOf(valueMessage(await task.result()))).toBe('x')
  })

  test('a request that was done before a restart is not done again after it', async ({ wire }) => {
    const { manager, jobs, client, asks } = await setUp(wire)
    const handle = await client.start(asks, 2)
    await jobs.signal({ id: handle.id, name: 'say', value: valueMessage(1), requestId: 'a' })
    const submit = { what: { case: 'task', value: 'echo' }, requestId: 's', input: valueMessage(7) } as const
    const { id } = await jobs.submit(submit)
    // A turn that runs would be left alone for as long as its worker may come back with it.
    await until(async () => (await handle.explain()).journal?.results === 1)
    await until(async () => (await handle.explain()).waits.length === 1)
    await manager.close()
    const works = worksOf(new Gates())
    const next = await wire.manager()
    await wire.work(next, { tasks: works.tasks, agents: works.agents })
    const again = rpcTo(wire, next)
    await again.signal({ id: handle.id, name: 'say', value: valueMessage(1), requestId: 'a' })
    expect((await again.submit(submit)).id).toBe(id)
    await again.signal({ id: handle.id, name: 'say', value: valueMessage(2), requestId: 'b' })
    expect(await next.agent(handle.id).result()).toEqual([1, 2])
    expect((await next.list({ name: 'echo' })).tasks).toHaveLength(1)
  })
})
