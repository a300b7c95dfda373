/** Cancelling one workflow of a job: rows S of the scenarios, in one process. */
import { expect } from 'vitest'
import { jobOf, statuses, worksOf } from '../scripts/acceptance/job-works.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { CancelAnswer } from './curfew.ts'
import { agent, CurfewError, job, TaskCancelled, task, workflow } from './curfew.ts'

onEachStore('cancelling one workflow of a job', (test, kind) => {
  test('S1: is answered by what it is', async ({ world }) => {
    const works = worksOf(world)
    const curfew = await world.open({ tasks: works.tasks })
    const handle = await curfew.submit(jobOf(works, { '+done': '', a: '', b: 'a', other: '' }))
    await world.clock.advance('1s')
    const cancel = (id: string) => handle.workflow(id).cancel()
    expect(await cancel('b')).toBe('pending_cancelled')
    expect(await cancel('a')).toBe('cancelled')
    expect(await cancel('done')).toBe('already_completed')
    expect(await cancel('nobody')).toBe('not_found')
    await world.clock.advance('1s')
    expect([await cancel('a'), await cancel('b')]).toEqual(['already_cancelled', 'already_cancelled'])
    expect(await handle.status()).toBe('running')
    await handle.cancel()
    await world.clock.settle()
    expect([await cancel('other'), await cancel('done')]).toEqual(['already_cancelled', 'already_completed'])
    const elsewhere = curfew
      .job((await curfew.schedule(works.quick, 'alone')).id)
      .workflow('a')
      .cancel()
    expect(await errorOf(elsewhere, CurfewError)).toMatchObject({ code: 'refused' })
  })

  test('S1: is complete when everything of it has stopped, with its ledger; what never ran has none', async ({
    world,
  }) => {
    const { hang } = worksOf(world)
    const slow = task({
      name: 'slow',
      run: (_: null, { signal }) => world.clock.sleep('1h', signal).catch(() => world.clock.sleep('3s')),
    })
    const graph = workflow({
      name: 'graph',
      actions: { slow },
      nodes: [{ id: 'n', actionId: 'slow', input: 'null' }],
    })
    const curfew = await world.open({ tasks: [slow, hang], workflows: [graph] })
    const handle = await curfew.submit(
      job({
        workflows: [
          { id: 'graph', workflow: graph },
          { id: 'next', task: slow, input: null, dependsOn: 'graph' },
          { id: 'other', task: hang, input: 'other' },
        ],
      }),
    )
    await world.clock.advance('1s')
    const target = handle.workflow('graph')
    const next = handle.workflow('next')
    expect(await target.cancel()).toBe('cancelled')
    // Those that wait for it are over at once.
    expect(await next.cancelled()).toEqual({ success: true, errors: [], ledger: [] })
    expect((await next.view()).status).toBe('cancelled')
    let told = false
    const outcome = target.cancelled({ timeout: '1m' }).finally(() => {
      told = true
    })
    await world.clock.advance('2900ms')
    expect(told).toBe(false)
    expect((await target.view()).status).toBe('cancelling')
    await world.clock.advance('200ms')
    const { success, ledger } = await outcome
    expect({ success, ledger }).toMatchObject({
      success: true,
      ledger: [{ name: 'slow', receipt: 'aborted' }],
    })
    expect(await errorOf(target.result(), TaskCancelled)).toMatchObject({ taskName: 'graph' })
    await handle.workflow('other').cancel()
    const error = await errorOf(handle.result(), TaskCancelled)
    expect(error.message).toMatch(/^job graph \(j_\w+\) was cancelled: workflow graph was cancelled/)
  })

  test('S1: is possible before its job has begun, and holds when it does', async ({ world }) => {
    const works = worksOf(world)
    const gate = Promise.withResolvers<null>()
    const blocks = agent({ name: 'blocks', run: (_: null, ctx) => ctx.run('block', () => gate.promise) })
    const curfew = await world.open({ tasks: works.tasks, agents: [blocks], turns: 1 })
    await curfew.start(blocks, null)
    await world.clock.settle()
    const handle = await curfew.submit(jobOf(works, { a: '', b: 'a', '+other': '' }))
    expect(await handle.workflow('a').cancel({ requestId: 'early' })).toBe('pending_cancelled')
    expect(await handle.workflow('a').cancel()).toBe('already_cancelled')
    expect(await handle.status()).toBe('pending')
    expect(await statuses(handle)).toEqual({ a: 'cancelled', b: 'cancelled', other: 'pending' })
    expect(await handle.workflow('b').cancelled()).toMatchObject({ success: true })
    gate.resolve(null)
    await errorOf(handle.result(), TaskCancelled)
    expect(await statuses(handle)).toEqual({ a: 'cancelled', b: 'cancelled', other: 'completed' })
    expect(works.began).toEqual(['other'])
    expect(await handle.workflow('a').cancel({ requestId: 'early' })).toBe('pending_cancelled')
  })

  test('S2: takes everything that waits for it along; the others run on, what has ended is left', async ({
    world,
  }) => {
    const works = worksOf(world)
    const curfew = await world.open({ tasks: works.tasks })
    const entries = { '+done': '', a: 'done', left: 'a', right: 'a', end: 'left right', other: 'done' }
    const handle = await curfew.submit(jobOf(works, entries))
    await world.clock.advance('1s')
    expect(await handle.workflow('a').cancel()).toBe('cancelled')
    await world.clock.settle()
    expect(await statuses(handle)).toEqual({
      ...{ done: 'completed', a: 'cancelled', other: 'running' },
      ...{ left: 'cancelled', right: 'cancelled', end: 'cancelled' },
    })
    const events = (await handle.events()).filter(({ type }) => type === 'workflow_cancelling')
    expect(events).toMatchObject([{ workflow: 'a', dependents: ['end', 'left', 'right'] }])
    expect(works.began).toEqual(['done', 'a', 'other'])
    // The job goes on for as long as anything of it does.
    expect(await handle.status()).toBe('running')
  })

  test('S2: alone leaves those that run however it ended', async ({ world }) => {
    const { hang, quick, began } = worksOf(world)
    const curfew = await world.open({ tasks: [hang, quick] })
    const handle = await curfew.submit(
      job({
        workflows: [
          { id: 'a', task: hang, input: 'a' },
          { id: 'next', task: quick, input: 'next', dependsOn: 'a' },
          { id: 'tidy', task: quick, input: 'tidy', dependsOn: 'a', runIf: 'always' },
        ],
      }),
    )
    await world.clock.advance('1s')
    expect(await handle.workflow('a').cancel({ dependents: false })).toBe('cancelled')
    await errorOf(handle.result(), TaskCancelled)
    expect(await statuses(handle)).toEqual({ a: 'cancelled', next: 'cancelled', tidy: 'completed' })
    expect((await handle.workflow('next').view()).failure?.code).toBe('dependency')
    expect(began).toEqual(['a', 'tidy'])
  })

  test('S2: a chain of 1000 is cancelled at its head, all of it at once', async ({ world }) => {
    const works = worksOf(world)
    const curfew = await world.open({ tasks: works.tasks })
    const entries: Record<string, string> = { w0: '' }
    for (let n = 1; n < 1_000; n++) entries[`w${n}`] = `w${n - 1}`
    const handle = await curfew.submit(jobOf(works, entries))
    await world.clock.advance('1s')
    expect(await handle.workflow('w0').cancel()).toBe('cancelled')
    expect((await handle.workflow('w999').view()).status).toBe('cancelled')
    await errorOf(handle.result(), TaskCancelled)
    const all = await handle.workflows()
    expect(all.map(({ status }) => status)).toEqual(Array(1_000).fill('cancelled'))
    expect(all.filter(({ runId }) => runId !== null)).toHaveLength(1)
    expect(works.began).toEqual(['w0'])
  })

  test('S3: the same request is answered the same; another one that it is done, and takes what is left', async ({
    world,
  }) => {
    const { hang, quick } = worksOf(world)
    // Replayed at every turn: it takes the same way again.
    const curfew = await world.open({ tasks: [hang, quick], residents: { count: 0 } })
    const handle = await curfew.submit(
      job({
        workflows: [
          { id: 'a', task: hang, input: 'a' },
          { id: 'tidy', task: hang, input: 'tidy', dependsOn: 'a', runIf: 'always' },
          { id: 'other', task: hang, input: 'other' },
        ],
      }),
    )
    await world.clock.advance('1s')
    const a = handle.workflow('a')
    const first = { requestId: 'r-1', dependents: false }
    expect(await a.cancel(first)).toBe('cancelled')
    expect(await a.cancel(first)).toBe('cancelled')
    await world.clock.advance('1s')
    expect(await a.cancel(first)).toBe('cancelled')
    expect((await handle.workflow('tidy').view()).status).toBe('running')
    expect(await a.cancel({ requestId: 'r-2' })).toBe('already_cancelled')
    await world.clock.advance('1s')
    expect((await handle.workflow('tidy').view()).status).toBe('cancelled')
    await handle.cancel()
    await world.clock.advance('1s')
    expect(await a.cancel(first)).toBe('cancelled')
    await expect(a.cancel({ requestId: '' })).rejects.toThrow('requestId')
  })

  test('S3, C2: ten at once, with a parent and its child among them, are one cancel each', async ({
    world,
  }) => {
    const works = worksOf(world)
    const curfew = await world.open({ tasks: works.tasks })
    const handle = await curfew.submit(jobOf(works, { a: '', b: 'a', c: 'b', other: '' }))
    await world.clock.advance('1s')
    const ask = (id: string) => Array.from({ length: 10 }, () => handle.workflow(id).cancel())
    const [ofB, ofA] = await Promise.all([Promise.all(ask('b')), Promise.all(ask('a'))])
    const counts = (answers: CancelAnswer[]) => Object.groupBy(answers, (answer) => answer)
    expect(counts(ofA)).toEqual({ cancelled: ['cancelled'], already_cancelled: expect.any(Array) })
    expect(counts(ofB).pending_cancelled?.length ?? 0).toBeLessThanOrEqual(1)
    expect(counts(ofB).cancelled).toBeUndefined()
    await world.clock.advance('1s')
    expect(await statuses(handle)).toEqual({
      ...{ a: 'cancelled', b: 'cancelled', c: 'cancelled', other: 'running' },
    })
    const once = await Promise.all(
      Array.from({ length: 10 }, () => handle.workflow('other').cancel({ requestId: 'same' })),
    )
    expect(new Set(once)).toEqual(new Set(['cancelled']))
  })

  test('S4, C4: one whose start is on its way is not begun once it was told to be cancelled', async ({
    world,
  }) => {
    const gates = new Map<number, (now: string) => void>()
    const first = task({ name: 'first', run: (n: number) => new Promise((resolve) => gates.set(n, resolve)) })
    const began = new Set<number>()
    const second = task({ name: 'second', run: (n: number) => void began.add(n) })
    const curfew = await world.open({ tasks: [first, second] })
    const answers = new Set<CancelAnswer>()
    for (let round = 0; round < (kind === 'memory' ? 200 : 60); round++) {
      const workflows = [
        { id: 'a', task: first, input: round },
        { id: 'b', task: second, input: round, dependsOn: 'a' },
      ] as const
      const handle = await curfew.submit(job({ workflows }))
      await world.clock.settle()
      gates.get(round)?.('now')
      // Let it come a little further in each round.
      for (let turn = 0; turn < round % 20; turn++) await new Promise((resolve) => setImmediate(resolve))
      const answer = await handle.workflow('b').cancel()
      answers.add(answer)
      await world.clock.settle()
      const { status } = await handle.workflow('b').view()
      expect(status).toBe(answer === 'already_completed' ? 'completed' : 'cancelled')
      if (answer === 'pending_cancelled') expect(began).not.toContain(round)
    }
    expect(answers).toContain('pending_cancelled')
    expect(answers).toContain('already_completed')
  })

  test('S6: any number of requests leaves the job as it was; gone with its record, it is not found', async ({
    world,
  }) => {
    const works = worksOf(world)
    const curfew = await world.open({ tasks: works.tasks })
    const handle = await curfew.submit(jobOf(works, { a: '', b: 'a', other: '' }))
    await world.clock.advance('1s')
    await handle.workflow('a').cancel()
    await world.clock.advance('1s')
    const before = await handle.explain()
    for (let n = 0; n < 20; n++) {
      const many = Array.from({ length: 50 }, (_, m) =>
        handle.workflow('ab'[m % 2] ?? '').cancel({ requestId: `${n}-${m}` }),
      )
      expect(new Set(await Promise.all(many))).toEqual(new Set(['already_cancelled']))
    }
    await world.clock.advance('1s')
    expect((await handle.explain()).journal).toEqual(before.journal)
    expect(await statuses(handle)).toEqual({ a: 'cancelled', b: 'cancelled', other: 'running' })
    await handle.cancel()
    await world.clock.advance('1s')
    await world.clock.advance('8d')
    expect(await handle.workflow('a').cancel()).toBe('not_found')
    expect(await errorOf(handle.workflows(), CurfewError)).toMatchObject({ code: 'not_found' })
  })
})

onEachStore(
  'cancelling one workflow, and a crash',
  (test) => {
    test('S4: what was told to be cancelled is not begun by whoever comes after', async ({ world }) => {
      const works = worksOf(world)
      const options = { tasks: works.tasks }
      const curfew = await world.open(options)
      const { id } = await curfew.submit(jobOf(works, { a: '', b: 'a', '+other': '', late: 'other' }))
      await world.clock.advance('1s')
      const cancelling = curfew.job(id).workflow('a').cancel({ requestId: 'r' })
      expect(await cancelling).toBe('cancelled')
      await world.crash()
      const began = works.began.length
      const reopened = await world.open(options)
      await world.runFor(30)
      const handle = reopened.job(id)
      expect(await statuses(handle)).toMatchObject({ a: 'cancelled', b: 'cancelled', other: 'completed' })
      expect(works.began.slice(began)).not.toContain('a')
      expect(works.began).not.toContain('b')
      expect(await handle.workflow('a').cancel({ requestId: 'r' })).toBe('cancelled')
      expect((await handle.workflow('b').cancelled()).success).toBe(true)
    })
  },
  ['file', 'postgres'],
)

onEachStore(
  'cancelling one workflow from another process',
  (test) => {
    test('S4: is heard by the one that runs it; both give one answer to ten requests at once', async ({
      world,
    }) => {
      const works = worksOf(world)
      const one = await world.open({ tasks: works.tasks })
      const handle = await one.submit(jobOf(works, { a: '', b: 'a', other: '', late: 'other' }))
      await world.runFor(1)
      const two = await world.open({ tasks: works.tasks })
      await world.runFor(2)
      const answers = await Promise.all(
        Array.from({ length: 10 }, (_, n) => (n % 2 ? one : two).job(handle.id).workflow('a').cancel()),
      )
      expect(answers.toSorted()).toEqual([...Array(9).fill('already_cancelled'), 'cancelled'])
      expect(await two.job(handle.id).workflow('late').cancel()).toBe('pending_cancelled')
      await world.runFor(3)
      expect(await two.job(handle.id).workflow('a').cancelled()).toMatchObject({ success: true })
      expect(await statuses(handle)).toMatchObject({ b: 'cancelled', other: 'running', late: 'cancelled' })
      expect(works.began).toEqual(['a', 'other'])
    })
  },
  ['postgres'],
)
