/** Code that changes under live runs: what does not take the steps on record is parked, and goes on with the right code. */
import { expect } from 'vitest'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import type { AgentContext, AgentHandle } from './curfew.ts'
import { agent, CurfewError, TaskCancelled, TaskTimedOut, task } from './curfew.ts'

const page = task({ name: 'page', run: (url: string) => `<${url}>` })
const other = task({ name: 'other', run: (url: string) => url })

type Code = (ctx: AgentContext) => unknown

const right: Code = async (ctx) => {
  const first = ctx.schedule(page, 'a')
  await ctx.sleep('1m')
  const read = await ctx.run('read', () => 'read')
  const word = await ctx.waitForSignal('go', { timeout: '1h' })
  return [await first, read, word]
}

/** An agent whose code can be exchanged; evicted at every wait, it meets the new one when it is woken. */
function exchangeable(code: Code = right) {
  const deployed = { code }
  return { deployed, worker: agent({ name: 'worker', run: (_: null, ctx) => deployed.code(ctx) }) }
}

const parkedEvents = async (handle: AgentHandle) =>
  (await handle.events()).filter(({ type }) => type === 'agent_parked')

onEachStore('changed code', (test) => {
  const changes: { what: string; code: Code; step: number; says: RegExp }[] = [
    {
      what: 'another task',
      step: 0,
      says: /^step 0: the journal has task 'page' with "a", occurrence 1, the code asked for task 'other' with "a"/,
      code: async (ctx) => ctx.all([ctx.schedule(other, 'a'), ctx.sleep('1m')]),
    },
    {
      what: 'another input',
      step: 0,
      says: /the code asked for task 'page' with "b"/,
      code: async (ctx) => ctx.all([ctx.schedule(page, 'b'), ctx.sleep('1m')]),
    },
    {
      what: 'another order',
      step: 0,
      says: /the code asked for sleep with 60000/,
      code: async (ctx) => ctx.all([ctx.sleep('1m'), ctx.schedule(page, 'a')]),
    },
    {
      what: 'another duration',
      step: 1,
      says: /^step 1: the journal has sleep with 60000, occurrence 1, the code asked for sleep with 120000/,
      code: async (ctx) => ctx.all([ctx.schedule(page, 'a'), ctx.sleep('2m')]),
    },
    {
      what: 'one more in between',
      step: 1,
      says: /the code asked for now/,
      code: async (ctx) => {
        const first = ctx.schedule(page, 'a')
        const at = ctx.now()
        await ctx.sleep('1m')
        return [await first, at]
      },
    },
    {
      what: 'another name of a run',
      step: 2,
      says: /^step 2: the journal has run 'read', occurrence 1, the code asked for run 'write'/,
      code: async (ctx) => {
        ctx.schedule(page, 'a')
        await ctx.sleep('1m')
        return ctx.run('write', () => 'written')
      },
    },
    {
      what: 'another limit of a wait',
      step: 3,
      says: /^step 3: the journal has signal 'go' with 3600000, occurrence 1, the code asked for signal 'go' with null/,
      code: async (ctx) => {
        ctx.schedule(page, 'a')
        await ctx.sleep('1m')
        await ctx.run('read', () => 'read')
        return ctx.waitForSignal('go')
      },
    },
    {
      what: 'an end before the last step',
      step: 3,
      says: /^step 3: the journal has signal 'go' with 3600000, occurrence 1, the code did not come to it/,
      code: async (ctx) => {
        const first = ctx.schedule(page, 'a')
        await ctx.sleep('1m')
        return [await first, await ctx.run('read', () => 'read')]
      },
    },
    {
      what: 'an error before the last step',
      step: 1,
      says: /^step 1: the journal has sleep with 60000, occurrence 1, the code did not come to it/,
      code: (ctx) => {
        ctx.schedule(page, 'a')
        throw new TypeError('a bug')
      },
    },
  ]

  for (const { what, code, step, says } of changes) {
    test(`${what} parks the run; with the right code it is resumed and completes`, async ({ world }) => {
      const { deployed, worker } = exchangeable()
      const curfew = await world.open({ tasks: [page, other], agents: [worker], residents: { count: 0 } })
      const handle = await curfew.start(worker, null)
      await world.clock.advance('2m')
      deployed.code = code
      await handle.signal('go', 'on')
      await world.clock.settle()
      const { status, parked, settled } = await handle.view()
      expect({ status, settled }).toEqual({ status: 'running', settled: false })
      expect(parked).toMatch(says)
      expect(await parkedEvents(handle)).toMatchObject([{ code: 'journal_mismatch', step, reason: parked }])
      expect((await handle.explain()).summary).toBe(`parked: ${parked}; it has no timeout`)
      const [line] = world.log.filter(({ message }) => message === 'Agent parked')
      expect(line).toMatchObject({ level: 'error', fields: { agentId: handle.id, code: 'journal_mismatch' } })
      expect(await metric(curfew, 'curfew_agents_parked_total', { name: 'worker' })).toBe(1)
      // Nothing of it moves by itself, and nothing new was scheduled.
      await world.clock.advance('1d')
      expect(await handle.view()).toMatchObject({ status: 'running', parked })
      expect((await curfew.list({ parent: handle.id })).tasks).toHaveLength(1)

      await curfew.resume(handle.id)
      await world.clock.settle()
      expect(await parkedEvents(handle)).toHaveLength(2) // the code is still wrong
      deployed.code = right
      await handle.resume()
      await world.clock.settle()
      expect(await handle.result()).toEqual(['<a>', 'read', 'on'])
      expect((await curfew.list({ parent: handle.id })).tasks).toHaveLength(1)
    })
  }

  test('a wait for what has not ended, before a step on record, parks the run', async ({ world }) => {
    const good: Code = async (ctx) => {
      const late = ctx.schedule(page, 'late', { delay: '1h' })
      return [await ctx.waitForSignal('go'), await late]
    }
    const { deployed, worker } = exchangeable(good)
    const curfew = await world.open({ tasks: [page], agents: [worker], residents: { count: 0 } })
    const handle = await curfew.start(worker, null)
    await world.clock.settle()
    deployed.code = async (ctx) => [await ctx.schedule(page, 'late'), await ctx.waitForSignal('go')]
    await handle.signal('go', 'on')
    await world.clock.settle()
    const says = /^step 1: the journal has signal 'go' with null, occurrence 1, the code did not come to it/
    expect((await handle.view()).parked).toMatch(says)
    deployed.code = good
    await handle.resume()
    await world.clock.advance('1h')
    expect(await handle.result()).toEqual(['on', '<late>'])
  })

  test('what comes after everything on record may be anything', async ({ world }) => {
    const { deployed, worker } = exchangeable()
    const curfew = await world.open({ tasks: [page, other], agents: [worker], residents: { count: 0 } })
    const handle = await curfew.start(worker, null)
    await world.clock.advance('2m')
    deployed.code = async (ctx) => [await right(ctx), await ctx.schedule(other, 'new')]
    await handle.signal('go', 'on')
    await world.clock.settle()
    expect(await handle.result()).toEqual([['<a>', 'read', 'on'], 'new'])
  })

  test('a run in memory goes on with the code it began with', async ({ world }) => {
    const { deployed, worker } = exchangeable()
    const curfew = await world.open({ tasks: [page], agents: [worker] })
    const handle = await curfew.start(worker, null)
    await world.clock.advance('2m')
    deployed.code = () => 'other'
    await handle.signal('go', 'on')
    await world.clock.settle()
    expect(await handle.result()).toEqual(['<a>', 'read', 'on'])
  })

  test('while parked: tasks end, signals are kept, the timeout and cancel work, without clean-up', async ({
    world,
  }) => {
    const { clock } = world
    const slow = task({
      name: 'slow',
      run: (_: null, { signal }) => clock.sleep('5m', signal).then(() => 'slow'),
    })
    const good: Code = async (ctx) => {
      const handle = ctx.schedule(slow, null)
      const nap = ctx.sleep('3m')
      await ctx.waitForSignal('go')
      return [await handle, await ctx.waitForSignal('word'), await nap, ctx.now()]
    }
    const cleaned: string[] = []
    const bad: Code = async (ctx) => {
      try {
        await ctx.sleep('1s')
      } finally {
        cleaned.push('cleaned')
      }
    }
    const { deployed, worker } = exchangeable(good)
    const curfew = await world.open({ tasks: [slow], agents: [worker], residents: { count: 0 } })
    const start = world.now
    const timedOut = await curfew.start(worker, null, { timeout: '2m' })
    const cancelled = await curfew.start(worker, null)
    const resumed = await curfew.start(worker, null)
    await clock.settle()
    deployed.code = bad
    for (const handle of [timedOut, cancelled, resumed]) await handle.signal('go')
    await clock.settle()
    for (const handle of [timedOut, cancelled, resumed]) {
      expect((await handle.view()).parked).toMatch(/^step 0: the journal has task 'slow' with null/)
    }
    await clock.advance('1m')
    expect(await cancelled.cancel()).toBe('cancelled')
    await clock.settle()
    expect(await errorOf(cancelled.result(), TaskCancelled)).toMatchObject({ taskId: cancelled.id })
    await clock.advance('1m')
    expect(await errorOf(timedOut.result(), TaskTimedOut)).toMatchObject({
      kind: 'agent',
      deadlineAt: start + 120_000,
    })
    for (const { id } of [cancelled, timedOut]) {
      expect((await curfew.list({ parent: id })).tasks).toMatchObject([
        { status: 'cancelled', receipt: 'aborted' },
      ])
    }
    expect(cleaned).toEqual([])
    // What has ended is not parked any more.
    expect((await curfew.list({ kind: 'agent', parked: true })).tasks.map(({ id }) => id)).toEqual([
      resumed.id,
    ])
    await clock.advance('8m')
    expect((await curfew.list({ parent: resumed.id })).tasks).toMatchObject([{ status: 'completed' }])
    await resumed.signal('word', 'kept')
    deployed.code = good
    await resumed.resume()
    await clock.settle()
    // The sleep was over long ago.
    expect(await resumed.result()).toEqual(['slow', 'kept', null, start + 600_000])
  })

  test('only what is parked can be resumed', async ({ world }) => {
    const { worker } = exchangeable()
    const curfew = await world.open({ tasks: [page], agents: [worker] })
    const handle = await curfew.start(worker, null)
    await world.clock.settle()
    expect(await errorOf(curfew.resume(handle.id), CurfewError)).toMatchObject({ code: 'refused' })
    expect(await errorOf(curfew.resume('g_none'), CurfewError)).toMatchObject({ code: 'not_found' })
  })
})

onEachStore(
  'changed code over a restart',
  (test) => {
    test('another release parks the run, the next one lets it go on', async ({ world }) => {
      const release = (code: Code) => ({
        tasks: [page, other],
        agents: [agent({ name: 'worker', run: (_: null, ctx) => code(ctx) })],
      })
      const first = await world.open(release(right))
      const { id } = await first.start(release(right).agents[0] as never, null as never, { timeout: '1d' })
      await world.clock.advance('2m')
      const { deadlineAt } = await first.agent(id).view()
      await world.crash()
      const second = await world.open(
        release(async (ctx) => ctx.all([ctx.schedule(other, 'a'), ctx.sleep('1m')])),
      )
      await second.agent(id).signal('go', 'on')
      await world.runFor(20)
      expect(await second.agent(id).view()).toMatchObject({ status: 'running', deadlineAt })
      expect((await second.agent(id).view()).parked).toMatch(/^step 0: .*task 'other'/)
      await world.close(second)
      const third = await world.open(release(right))
      await world.clock.settle()
      expect((await third.agent(id).view()).parked).toMatch(/^step 0:/)
      await third.resume(id)
      await world.runFor(5)
      expect(await third.agent(id).result()).toEqual(['<a>', 'read', 'on'])
      expect((await third.list({ parent: id })).tasks).toHaveLength(1)
    })
  },
  ['file', 'postgres'],
)
