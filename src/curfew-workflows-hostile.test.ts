// What must not hurt anybody else: values that grow, graphs that go round, definitions that change under a run.
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import { agent, job, task, workflow } from './curfew.ts'

const double = task({ name: 'double', run: (n: number) => 2 * n })
/** Goes round `a` so many times, then ends. */
const round = (name: string, updates: Record<string, string | string[]>, times: number) =>
  workflow({
    name,
    actions: { update: { kind: 'update_context', updates } },
    nodes: [{ id: 'a', actionId: 'update' }, { id: 'end' }],
    start: 'a',
    transitions: [
      { from: 'a', to: 'a', loop: { maxIterations: times } },
      { from: 'a', to: 'end', priority: 1 },
    ],
  })

onEachStore('what could hurt others', (test) => {
  test('a value that doubles is refused long before it could be written down', async ({ world }) => {
    const grow = round(
      'grow',
      { 'state.x': ["has(state.x) ? state.x : 'x'", "has(state.x) ? state.x : 'x'"] },
      60,
    )
    const curfew = await world.open({ workflows: [grow] })
    await expect((await curfew.start(grow)).result()).rejects.toMatchObject({
      failure: { code: 'too_big', message: expect.stringContaining('node a: updates state.x') },
    })
  })

  test('expressions that take long, again and again with no work in between, end the run', async ({
    world,
  }) => {
    const list = `[${Array.from({ length: 25 }, (_, n) => n).join()}]`
    const busy = `${list}.map(a, ${list}.map(b, ${list}.filter(c, c == a + b).size())).size()`
    const spin = round('spin', { 'state.n': busy }, 5_000)
    const curfew = await world.open({ workflows: [spin] })
    await expect((await curfew.start(spin)).result()).rejects.toMatchObject({
      failure: { code: 'endless_loop', message: expect.stringContaining('too many steps') },
    })
  })

  test('a workflow that calls itself ends', async ({ world }) => {
    const deep = workflow({
      name: 'deep',
      timeout: null,
      actions: { self: { kind: 'workflow_call', workflow: 'deep' } },
      nodes: [{ id: 'a', actionId: 'self' }],
    })
    const curfew = await world.open({ workflows: [deep] })
    await expect((await curfew.start(deep)).result()).rejects.toThrow(/would be inside 100 others/)
  })

  test('an input that is not JSON is refused before anything is stored', async ({ world }) => {
    const once = workflow({ name: 'once', actions: { double }, nodes: [{ id: 'a', actionId: 'double' }] })
    const curfew = await world.open({ workflows: [once] })
    await expect(curfew.start(once, () => 1)).rejects.toMatchObject({ code: 'invalid_json' })
    expect((await curfew.list()).tasks).toEqual([])
  })

  test('the same call with the same key is answered with the first run, also after a deployment', async ({
    world,
  }) => {
    const withRetries = (retries: number) => {
      const work = task({ name: 'work', retries, run: (n: number) => n })
      return workflow({ name: 'keyed', actions: { work }, nodes: [{ id: 'a', actionId: 'work' }] })
    }
    const first = withRetries(1)
    const curfew = await world.open({ workflows: [first] })
    const { id } = await curfew.start(first, 7, { key: 'k' })
    const again = await curfew.start(withRetries(2), 7, { key: 'k' })
    expect([again.id, again.existing]).toEqual([id, true])
    await expect(curfew.start(first, 8, { key: 'k' })).rejects.toMatchObject({
      code: 'key_conflict',
      fields: { key: 'k' },
    })
    const batch = (retries: number) =>
      job({ name: 'b', workflows: [{ id: 'a', workflow: withRetries(retries), input: 1 }] })
    const { id: jobId } = await curfew.submit(batch(1), { key: 'k' })
    expect((await curfew.submit(batch(2), { key: 'k' })).id).toBe(jobId)
  })

  test('a job that is cancelled at the moment it is looked at for being stuck is just cancelled', async ({
    world,
  }) => {
    const hang = task({
      name: 'hang',
      run: (_: null, context) =>
        new Promise<never>((_, reject) =>
          context.signal.addEventListener('abort', () => reject(context.signal.reason as Error)),
        ),
    })
    const curfew = await world.open({ tasks: [hang] })
    const handle = await curfew.submit(job({ stuckAfter: '10s', workflows: [{ id: 'a', task: hang }] }))
    await world.clock.advance('9999ms')
    const advanced = world.clock.advance('1ms')
    await handle.cancel()
    await advanced
    await world.clock.advance('1s')
    expect(['cancelled', 'timed_out']).toContain(await handle.status())
  })

  test('what watches over a job costs it no step, however long it runs', async ({ world }) => {
    const bounded = task({
      name: 'bounded',
      attemptTimeout: '3h',
      run: (_: null, context) =>
        new Promise<never>((_, reject) =>
          context.signal.addEventListener('abort', () => reject(context.signal.reason as Error)),
        ),
    })
    const curfew = await world.open({ tasks: [bounded] })
    const handle = await curfew.submit(job({ stuckAfter: '1m', workflows: [{ id: 'a', task: bounded }] }))
    await world.clock.advance('2h')
    const { journal } = await handle.explain()
    expect(journal).toMatchObject({ steps: 3, turns: 1 })
    await handle.cancel()
  })
})

onEachStore(
  'definitions that change under a run',
  (test) => {
    test('an agent goes on with the workflow it began, whatever its definition is by now', async ({
      world,
    }) => {
      const open = async (retries: number) => {
        const work = task({ name: 'work', retries, run: (n: number) => n + 1 })
        const child = workflow({ name: 'child', actions: { work }, nodes: [{ id: 'a', actionId: 'work' }] })
        const caller = agent({
          name: 'caller',
          run: async (n: number, ctx) => {
            const first = (await ctx.child(child, n)) as number
            await ctx.sleep('1h')
            return ctx.child(child, first)
          },
        })
        const curfew = await world.open({ agents: [caller], workflows: [child] })
        return { curfew, caller }
      }
      const before = await open(1)
      const { id } = await before.curfew.start(before.caller, 1)
      await world.clock.advance('1s')
      await world.crash()
      const { curfew } = await open(2)
      await world.runFor(60)
      await world.clock.advance('1h')
      expect(await curfew.agent(id).result()).toBe(3)
    })
  },
  ['file', 'postgres'],
)
