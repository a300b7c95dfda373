/** Cancelling jobs: rows C of the scenarios, in one process. */
import { expect } from 'vitest'
import { jobOf, statuses, worksOf } from '../scripts/acceptance/job-works.ts'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import { agent, job, TaskCancelled, task, WaitTimedOut, workflow } from './curfew.ts'

onEachStore('cancelling a job', (test, kind) => {
  test('stops everything below it, at any depth, and lists every attempt', async ({ world }) => {
    const { hang, quick } = worksOf(world)
    const inner = workflow({
      name: 'inner',
      actions: { hang },
      nodes: [{ id: 'deep', actionId: 'hang', input: "'deep'" }],
    })
    const outer = workflow({
      name: 'outer',
      actions: { quick, call: inner },
      nodes: [
        { id: 'first', actionId: 'quick', input: "'first'" },
        { id: 'call', actionId: 'call' },
      ],
      transitions: [{ from: 'first', to: 'call' }],
    })
    const boss = agent({ name: 'boss', run: async (_: null, ctx) => ctx.schedule(hang, 'below an agent') })
    const slow = task({
      name: 'slow',
      // Follows its signal two seconds late.
      run: (_: null, { signal }) => world.clock.sleep('1h', signal).catch(() => world.clock.sleep('2s')),
    })
    const curfew = await world.open({ tasks: [hang, quick, slow], agents: [boss], workflows: [outer, inner] })
    const handle = await curfew.submit(
      job({
        workflows: [
          { id: 'graph', workflow: outer },
          { id: 'agent', agent: boss, input: null },
          { id: 'slow', task: slow, input: null },
          { id: 'later', task: hang, input: 'later', dependsOn: 'slow' },
        ],
      }),
    )
    await world.clock.advance('5s')
    expect(await handle.cancel()).toBe('cancelled')
    await world.clock.settle()
    expect(await handle.status()).toBe('cancelling')
    const tooSoon = errorOf(handle.cancelled({ timeout: '1s' }), WaitTimedOut)
    const outcome = handle.cancelled({ timeout: '1m' })
    await world.clock.advance('1s')
    await tooSoon
    await world.clock.advance('1s')
    const { success, errors, ledger } = await outcome
    expect({ success, errors }).toEqual({ success: true, errors: [] })
    expect(ledger.map(({ name, receipt, status }) => [name, receipt, status]).toSorted()).toEqual([
      ['hang', 'aborted', 'cancelled'],
      ['hang', 'aborted', 'cancelled'],
      ['slow', 'aborted', 'cancelled'],
    ])
    expect(await statuses(handle)).toEqual({
      graph: 'cancelled',
      agent: 'cancelled',
      slow: 'cancelled',
      later: 'cancelled',
    })
    expect((await handle.workflow('later').view()).failure).toMatchObject({
      code: 'job_ended',
      message: 'the job was cancelled before it could start',
    })
    await errorOf(handle.result(), TaskCancelled)
    const types = (await handle.events()).map(({ type }) => type)
    expect(types).toEqual(['job_scheduled', 'job_started', 'job_cancelling', 'job_cancelled'])
  })

  test('C2: ten times at once is one request; ended jobs stay what they are; an unknown one is not found', async ({
    world,
  }) => {
    const works = worksOf(world)
    const bad = task({ name: 'bad', run: () => Promise.reject(new Error('no')) })
    const curfew = await world.open({ tasks: [...works.tasks, bad] })
    const handle = await curfew.submit(jobOf(works, { a: '', b: '' }))
    await world.clock.advance('1s')
    const answers = await Promise.all(Array.from({ length: 10 }, () => handle.cancel()))
    expect(answers.toSorted()).toEqual([...Array(9).fill('already_cancelled'), 'cancelled'])
    expect((await handle.cancelled()).ledger).toHaveLength(2)
    expect(await handle.cancel()).toBe('already_cancelled')
    expect((await handle.events()).filter(({ type }) => type === 'job_cancelling')).toHaveLength(1)

    const done = await curfew.submit(jobOf(works, { '+a': '' }))
    const failed = await curfew.submit(bad)
    const timedOut = await curfew.submit(jobOf(works, { a: '' }, { timeout: '5s' }))
    await world.clock.advance('6s')
    for (const [ended, status] of [
      [done, 'completed'],
      [failed, 'failed'],
      [timedOut, 'timed_out'],
    ] as const) {
      expect(await ended.cancel()).toBe('already_completed')
      expect(await ended.status()).toBe(status)
      expect(await ended.cancelled()).toMatchObject({
        success: false,
        errors: [`it was not cancelled: it is ${status}`],
      })
    }
    expect(await curfew.job('j_nobody').cancel()).toBe('not_found')
    expect(await curfew.job('j_nobody').workflow('a').cancel()).toBe('not_found')
  })

  test('C4: nothing starts afterwards, neither what was about to start nor what was to be tried again', async ({
    world,
  }) => {
    let tries = 0
    const flaky = task({
      name: 'flaky',
      retries: 5,
      backoff: { initial: '10s', jitter: 0 },
      run: () => {
        tries++
        throw new Error('again')
      },
    })
    const works = worksOf(world)
    const curfew = await world.open({ tasks: [flaky, ...works.tasks] })
    const retrying = await curfew.submit(flaky)
    await world.clock.advance('1s')
    expect(tries).toBe(1)
    expect(await retrying.cancel()).toBe('cancelled')
    const atOnce = await curfew.submit(jobOf(works, { '+a': '', '+b': 'a' }))
    const answer = await atOnce.cancel()
    await world.clock.advance('2m')
    expect(tries).toBe(1)
    expect(await retrying.cancelled()).toMatchObject({ success: true })
    if (answer === 'pending_cancelled') expect(works.began).toEqual([])
    expect(works.began).not.toContain('b')
    expect(await atOnce.status()).toBe('cancelled')
  })

  test('C4: a result that comes after the cancel is late, and changes nothing', async ({ world }) => {
    const rude = task({
      name: 'rude',
      run: (_: null, { signal }) => world.clock.sleep('1h', signal).catch(() => 'I finished anyway'),
    })
    const curfew = await world.open({ tasks: [rude] })
    const handle = await curfew.submit(rude, null)
    await world.clock.advance('1s')
    await handle.cancel()
    await world.clock.advance('1s')
    expect(await handle.status()).toBe('cancelled')
    const [member] = await handle.workflows()
    expect(member).toMatchObject({ status: 'cancelled', output: null })
    expect(await metric(curfew, 'curfew_late_results_total')).toBe(1)
  })

  test('C8: what ignores its signal is told of, and the job is cancelled all the same', async ({ world }) => {
    const count = kind === 'postgres' ? 50 : 200
    const deaf = task({ name: 'deaf', run: () => new Promise(() => undefined) })
    const curfew = await world.open({ tasks: [deaf], concurrency: count })
    const workflows = Array.from({ length: count }, (_, n) => ({ id: `w${n}`, task: deaf }))
    const handle = await curfew.submit(job({ workflows }))
    await world.clock.advance('1s')
    await handle.cancel()
    await world.clock.advance('4900ms')
    expect(await handle.status()).toBe('cancelling')
    await world.clock.advance('3s')
    expect(await handle.status()).toBe('cancelled')
    const { success, errors, ledger } = await handle.cancelled()
    expect(success).toBe(false)
    expect(ledger).toHaveLength(count)
    expect(new Set(ledger.map(({ receipt }) => receipt))).toEqual(new Set(['abandoned']))
    expect(errors[0]).toMatch(/^attempt 1 of task deaf \(t_\w+\) ignored its signal and still runs$/)
    expect(await metric(curfew, 'curfew_slots', { state: 'abandoned' })).toBe(count)
    expect(await metric(curfew, 'curfew_slots', { state: 'taken' })).toBe(0)
  })
})
