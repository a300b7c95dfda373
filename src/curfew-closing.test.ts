import { expect, test as plainTest } from 'vitest'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { Timer } from './core/clock.ts'
import { SystemClock } from './core/system-clock.ts'
import { Curfew, CurfewError, task } from './curfew.ts'

onEachStore('what must not be left hanging', (test, kind) => {
  test('a queue with a limit works off a bulk that is larger than one batch', async ({ world }) => {
    let ran = 0
    const one = task({ name: 'one', queue: 'narrow', run: () => ++ran })
    const curfew = await world.open({
      tasks: [one],
      queues: { narrow: { concurrency: kind === 'postgres' ? 4 : 1 } },
    })
    // More than the funnel takes at once: reports of the first ones come while others are still being stored.
    await curfew.scheduleMany(one, Array(kind === 'postgres' ? 600 : 1_200).fill(undefined))
    await world.clock.settle()
    expect(ran).toBe(kind === 'postgres' ? 600 : 1_200)
  })

  test('whoever waits for a result when the engine is closed is told so', async ({ world }) => {
    const never = task({ name: 'never', run: () => 1 })
    const curfew = await world.open()
    const handle = await curfew.schedule(never)
    const waiting = errorOf(handle.result(), CurfewError)
    await world.close(curfew)
    expect(await waiting).toMatchObject({ code: 'closed' })
    expect(await errorOf(handle.result(), CurfewError)).toMatchObject({ code: 'closed' })
    expect(await errorOf(curfew.schedule(never), CurfewError)).toMatchObject({ code: 'closed' })
    expect(await errorOf(curfew.list(), CurfewError)).toMatchObject({ code: 'closed' })
  })

  test('a second close ends the draining of the first', async ({ world }) => {
    const { clock } = world
    const long = task({ name: 'long', run: (_: null, { signal }) => clock.sleep('1d', signal) })
    const curfew = await world.open({ tasks: [long] })
    await curfew.schedule(long, null)
    await clock.settle()
    const drained = curfew.close({ drain: true })
    await clock.settle()
    await world.close(curfew)
    await drained
  })

  test('a drain that makes no sense is refused, and the engine goes on', async ({ world }) => {
    const work = task({ name: 'work', run: () => 'done' })
    const curfew = await world.open({ tasks: [work] })
    await expect(curfew.close({ drain: 'soon' })).rejects.toThrow(CurfewError)
    expect(await (await curfew.schedule(work)).result()).toBe('done')
  })

  test('what a handler returns while its process closes is its result', async ({ world }) => {
    const { clock } = world
    const deaf = task({ name: 'deaf', grace: '10s', run: () => clock.sleep('3s').then(() => 'through') })
    const curfew = await world.open({ tasks: [deaf] })
    const handle = await curfew.schedule(deaf)
    await clock.settle()
    const result = handle.result()
    await world.close(curfew)
    expect(await result).toBe('through')
  })
})

onEachStore(
  'damage',
  (test) => {
    test('an input that cannot be read fails its task alone', async ({ world }) => {
      const work = task({ name: 'work', run: () => 1 })
      const first = await world.open()
      const handle = await first.schedule(work)
      for (const table of ['tasks', 'light_ready']) await world.sql(`update curfew.${table} set input = '{'`)
      const curfew = await world.open({ tasks: [work] })
      await world.runFor(3)
      expect(await curfew.task(handle.id).view()).toMatchObject({
        status: 'failed',
        failure: { code: 'invalid_input' },
      })
    })
  },
  ['postgres'],
)

/** Knows which of its timers would still keep a process. */
class WatchedClock extends SystemClock {
  readonly armed = new Set<number>()
  #timers = 0

  override setTimer(delayMs: number, callback: () => void): Timer {
    const no = ++this.#timers
    this.armed.add(no)
    const timer = super.setTimer(delayMs, () => {
      this.armed.delete(no)
      callback()
    })
    return {
      cancel: () => {
        this.armed.delete(no)
        timer.cancel()
      },
    }
  }
}

onEachStore(
  'a process that closes',
  (test) => {
    test('is not kept by looking after workers that its predecessor had', async ({ world }) => {
      const work = task({ name: 'work', run: () => 1 })
      const before = await world.open()
      await before.schedule(work)
      await world.close(before)
      // It was killed while a worker of another process ran its task.
      await world.sql(
        `insert into nodes (id, epoch, host, pid, started_at, renewed_at, lead_until) values ('n_dead', 1, 'h', 1, 1, 1, 0)`,
      )
      await world.sql(`update tasks set status = 'running', ready = 0, live = 1, attempt = 1, started_at = 1,
        token = 'r_1', node_id = 'n_dead'`)
      const clock = new WatchedClock()
      const curfew = await Curfew.open({ store: world.store, clock, logger: world.logger, listen: false })
      expect(clock.armed.size).toBeGreaterThan(0)
      await curfew.close()
      expect(clock.armed.size).toBe(0)
    })
  },
  ['file'],
)

plainTest(
  'a manager that closes waits for nobody who waits: they are answered, and can ask elsewhere',
  async () => {
    const manager = await Curfew.open({ store: ':memory:', concurrency: 0, listen: '127.0.0.1:0' })
    const { id } = await manager.schedule(task({ name: 'never', run: () => 1 }))
    const waiting = fetch(`${manager.url}/curfew.v1.JobService/Wait`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ id, timeoutMs: 30_000 }),
    }).then((response) => response.json())
    // Sent later, over another connection: the first has arrived by then.
    expect((await fetch(`${manager.url}/healthz`)).status).toBe(200)
    await manager.close()
    expect(await waiting).toMatchObject({ details: [{ debug: { code: 'closed' } }] })
  },
)
