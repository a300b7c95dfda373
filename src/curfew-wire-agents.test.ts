/** Agents over the wire are what they are in one process: signals, children, waits, parking. */
import { expect } from 'vitest'
import { bothWays, expectSameReads, readAll, shapeOf } from '../scripts/acceptance/both-ways.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { AgentDefinition } from './curfew.ts'
import { agent, HandlerError, task } from './curfew.ts'

function worksOf(gates: Gates) {
  const echo = task({ name: 'echo', run: (value: unknown) => value })
  const hold = task({
    name: 'hold',
    grace: '1s',
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const breaks = task({
    name: 'breaks',
    run: (code: string) => {
      throw new HandlerError(`it broke: ${code}`, { code, retryable: false, details: [code] })
    },
  })
  const gather = agent({
    name: 'gather',
    timeout: '1h',
    run: async (input: { words: string[] }, ctx) => {
      const words = await ctx.all(input.words.map((word) => ctx.schedule(echo, word)))
      const said = await ctx.waitForSignal<{ word: string }>('say')
      const { index, value } = await ctx.any([ctx.schedule(breaks, 'first'), ctx.schedule(echo, 'second')])
      const settled = await ctx.allSettled([ctx.schedule(breaks, 'third'), ctx.schedule(echo, 'fourth')])
      const random = ctx.random()
      await ctx.sleep('5ms')
      const made = await ctx.run('make', () => ({ made: [1, null] }))
      return { words, said, index, value, settled, made, random: random >= 0 && random < 1, id: ctx.agentId }
    },
  })
  const family = agent({
    name: 'family',
    run: async (depth: number, ctx): Promise<unknown> =>
      depth === 0 ? ctx.waitForSignal('go') : ctx.child(family, depth - 1),
  }) as AgentDefinition<number, unknown>
  const waits = agent({
    name: 'waits',
    run: async (_: null, ctx) => {
      try {
        return await ctx.all([ctx.schedule(hold, 'a'), ctx.schedule(hold, 'b')])
      } finally {
        await ctx.schedule(echo, 'clean')
      }
    },
  })
  const fails = agent({
    name: 'fails',
    run: async (code: string, ctx) => {
      await ctx.schedule(breaks, code)
    },
  })
  // Code that is changed under a live run: every replay of it asks for something else.
  const changing = { steps: 0 }
  const changed = agent({
    name: 'changed',
    run: async (_: null, ctx) => {
      const first = await ctx.schedule(echo, changing.steps)
      return [first, await ctx.waitForSignal('on')]
    },
  })
  const agents = [gather, family, waits, fails, changed]
  return { tasks: [echo, hold, breaks], agents, gather, family, waits, fails, changed, changing, hold }
}

onEachWire('agents over the wire', (test) => {
  test('schedule, wait, sleep, run and take signals', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, _gates, { gather }) => {
      const handle = await client.start(gather, { words: ['a', 'b'] }, { key: 'k', timeout: '30m' })
      const again = await client.start(gather, { words: ['a', 'b'] }, { key: 'k' })
      await until(async () => (await handle.explain()).waits.some(({ what }) => what === 'signal'))
      const waiting = await readAll(client, handle.id)
      await handle.signal('say', { word: 'hello', nothing: null })
      const result = await handle.result()
      const after = await shapeOf(handle.signal('say', 1))
      const conflict = await shapeOf(client.start(gather, { words: [] }, { key: 'k' }))
      return [
        ...[result, waiting, await readAll(client, handle.id), again.existing, again.id === handle.id],
        ...[after, conflict, handle.kind, await client.agent(handle.id).status()],
      ]
    })
  })

  test('are cancelled with everything below them, with one ledger', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { waits }) => {
      const handle = await client.start(waits, null)
      await until(() => gates.entered.length === 2)
      const answer = await handle.cancel()
      const { ledger, ...outcome } = await handle.cancelled({ timeout: '20s' })
      const names = ledger.map(({ name, status, receipt }) => [name, status, receipt]).toSorted()
      return [answer, outcome, names, await shapeOf(handle.result()), (await handle.view()).status]
    })
  })

  test('fail, time out and are waited for with the same errors', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { fails, waits, family }) => {
      const failed = await client.start(fails, 'no_luck')
      const late = await client.start(waits, null, { timeout: '3s', warnAt: 1 })
      await until(() => gates.entered.length === 2)
      const open = await client.start(family, 0)
      return [
        ...[await shapeOf(failed.result()), await shapeOf(late.result())],
        ...[await shapeOf(open.result({ timeout: '5ms' })), await shapeOf(open.extend('1s'))],
        ...[await readAll(client, failed.id), await shapeOf(client.start({} as never, null))],
      ]
    })
  })

  test('are parked when their code was changed, and resumed', async ({ wire }) => {
    await bothWays(
      wire,
      worksOf,
      async (client, _gates, { changed, changing }) => {
        const handle = await client.start(changed, null)
        await until(async () => (await handle.explain()).waits.some(({ what }) => what === 'signal'))
        changing.steps = 1
        await handle.signal('on', 'now')
        await until(async () => (await handle.view()).parked !== null)
        const parked = await readAll(client, handle.id)
        const listed = (await client.list({ parked: true })).tasks
        changing.steps = 0
        await client.resume(handle.id)
        const result = await handle.result()
        return [parked, listed, result, await readAll(client, handle.id), await shapeOf(handle.resume())]
      },
      { residents: { count: 0 } },
    )
  })

  test('are explained as deep as they go', async ({ wire }) => {
    const works = worksOf(new Gates())
    const manager = await wire.manager()
    await wire.work(manager, { tasks: works.tasks, agents: works.agents })
    const client = await wire.connect(manager)
    const handle = await client.start(works.family, 60)
    const lowest = await until(async () => {
      const { tasks } = await manager.list({ name: 'family', limit: 100 })
      return tasks.length === 61 ? tasks[0] : undefined
    })
    if (!lowest) throw new Error('there is none')
    await until(async () => (await manager.agent(lowest.id).explain()).waits.length > 0)
    await expectSameReads(manager, client, handle.id)
    await client.agent(lowest.id).signal('go', nested(95))
    expect(await handle.result()).toEqual(nested(95))
  })

  test('give values back as deep as they may be kept', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, _gates, { tasks: [echo], family }) => {
      const deep = nested(100)
      const handle = await client.schedule(echo as typeof echo & object, deep)
      const given = await handle.result()
      const agentHandle = await client.start(family, 0)
      await agentHandle.signal('go', deep)
      await agentHandle.result()
      const { output } = await agentHandle.view()
      const named = await client.submitNamed({ task: 'echo', input: deep })
      const tooDeep = await shapeOf(client.submitNamed({ task: 'echo', input: [deep] }))
      return [given, (await handle.view()).output, output, await client.task(named.id).result(), tooDeep]
    })
  })
})

function nested(depth: number): unknown {
  let value: unknown = depth % 2 ? [] : {}
  for (let level = depth - 1; level > 0; level--) value = level % 2 ? [value] : { in: value }
  return value
}
