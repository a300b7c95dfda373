// A job in which something runs and nothing moves, DESIGN.md section 8 and rows T2 and T3 of the scenarios.
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { TaskContext } from './curfew.ts'
import { job, task } from './curfew.ts'

const waits = (context: TaskContext) =>
  new Promise<never>((_, reject) =>
    context.signal.addEventListener('abort', () => reject(context.signal.reason as Error)),
  )
const hang = task({ name: 'hang', run: (_: null, context) => waits(context) })
const bounded = task({ name: 'bounded', attemptTimeout: '10m', run: (_: null, context) => waits(context) })

onEachStore('a job that is stuck', (test) => {
  test('T2: is timed out as stuck, never earlier, and says what to do; its worker lives on', async ({
    world,
  }) => {
    const curfew = await world.open({ tasks: [hang] })
    const handle = await curfew.submit(job({ name: 'nightly', workflows: [{ id: 'one', task: hang }] }))
    await world.clock.advance('119s')
    expect(await handle.status()).toBe('running')
    await world.clock.advance('1100ms')
    await expect(handle.result()).rejects.toMatchObject({ code: 'task_timed_out', kind: 'stuck' })
    const { failure, receipt } = await handle.view()
    expect(failure?.message).toMatch(/without a limit .* moved for 2m\. Set a limit, report progress, or/)
    expect(receipt).toBeNull()
    const [member] = await handle.workflows()
    expect(member?.status).toBe('cancelled')
    const again = await curfew.submit(job({ stuckAfter: '1s', workflows: [{ id: 'one', task: hang }] }))
    await world.clock.advance('1100ms')
    expect(await again.status()).toBe('timed_out')
  })

  test('T3: is not when it makes progress every half of the time; its own deadline still fires', async ({
    world,
  }) => {
    const steps = task({
      name: 'steps',
      run: async (_: null, context) => {
        for (let n = 1; ; n++) {
          await new Promise<void>((resolve, reject) => {
            context.signal.addEventListener('abort', () => reject(context.signal.reason as Error))
            world.clock.setTimer(1_000, resolve)
          })
          context.progress({ completed: n })
        }
      },
    })
    const curfew = await world.open({ tasks: [steps] })
    const handle = await curfew.submit(
      job({ timeout: '60s', stuckAfter: '2s', workflows: [{ id: 'one', task: steps }] }),
    )
    for (let second = 0; second < 59; second++) await world.clock.advance('1s')
    expect(await handle.status()).toBe('running')
    await world.clock.advance('1100ms')
    await expect(handle.result()).rejects.toMatchObject({ kind: 'job' })
  })

  test('is not for as long again when an attempt ends that is tried again, or an operator gives time', async ({
    world,
  }) => {
    const flaky = task({
      name: 'flaky',
      ...{ attemptTimeout: '10m', retries: 1, backoff: { initial: '1m', jitter: 0 } },
      run: async (_: null, { signal }) => {
        await world.clock.sleep('100s', signal)
        throw new Error('no')
      },
    })
    const curfew = await world.open({ tasks: [hang, flaky] })
    const workflows = [
      { id: 'quiet', task: hang },
      { id: 'busy', task: flaky },
    ]
    const tried = await curfew.submit(job({ failFast: false, workflows }))
    const given = await curfew.submit(job({ workflows: [{ id: 'one', task: hang }] }))
    await world.clock.advance('100s')
    const running = (await given.explain()).below[0]?.id ?? ''
    await curfew.task(running).extend('1m')
    await world.clock.advance('21s')
    expect([await tried.status(), await given.status()]).toEqual(['running', 'running'])
    await world.clock.advance('100s')
    expect([await tried.status(), await given.status()]).toEqual(['running', 'timed_out'])
  })

  test('is not because of a handler that was stopped and goes on all the same', async ({ world }) => {
    const deaf = task({
      name: 'deaf',
      grace: '1s',
      run: async (_: null) => world.clock.sleep('1h'),
    })
    const curfew = await world.open({ tasks: [deaf, bounded] })
    const workflows = [
      { id: 'deaf', task: deaf },
      { id: 'bounded', task: bounded },
    ]
    const handle = await curfew.submit(job({ workflows }))
    await world.clock.advance('1s')
    await handle.workflow('deaf').cancel()
    await world.clock.advance('5m')
    expect((await handle.workflows()).map(({ status }) => status)).toEqual(['cancelled', 'running'])
    expect(await handle.status()).toBe('running')
    await handle.cancel()
    await world.clock.advance('1h')
  })

  test('is not while what runs has a limit of its own, or with null', async ({ world }) => {
    const curfew = await world.open({ tasks: [hang, bounded] })
    const own = await curfew.submit(job({ stuckAfter: '10s', workflows: [{ id: 'one', task: bounded }] }))
    const never = await curfew.submit(job({ stuckAfter: null, workflows: [{ id: 'one', task: hang }] }))
    await world.clock.advance('9m')
    expect([await own.status(), await never.status()]).toEqual(['running', 'running'])
    await world.clock.advance('2m')
    await expect(own.result()).rejects.toMatchObject({ kind: 'execution' })
    await never.cancel()
  })
})

onEachStore(
  'a job that is stuck and whose process dies',
  (test) => {
    test('is still found after its process was killed', async ({ world }) => {
      const first = await world.open({ tasks: [hang] })
      const { id } = await first.submit(job({ stuckAfter: '60s', workflows: [{ id: 'one', task: hang }] }))
      await world.clock.advance('30s')
      await world.crash()
      const curfew = await world.open({ tasks: [hang] })
      // The attempt is lost and repeated: that is a change.
      await world.runFor(55)
      expect(await curfew.job(id).status()).toBe('running')
      await world.runFor(60)
      expect(await curfew.job(id).status()).toBe('timed_out')
    })
  },
  ['file', 'postgres'],
)
