import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '../../../scripts/postgres/database.ts'
import type { RowOptions } from '../../engine/fixtures/task-rows.ts'
import { claimedRow, newRow, newTask } from '../../engine/fixtures/task-rows.ts'
import { lockTasks, withoutClaimed } from '../../engine/light-claims.ts'
import { decideTask } from '../../engine/task-decide.ts'
import { SharedDatabase } from '../fixtures/shared-database.ts'
import type { TestStore } from '../fixtures/stores.ts'
import type { ClaimFloor, ClaimPlace } from '../hot-statements.ts'
import { standsBefore } from '../hot-statements.ts'
import type { Statement, Work } from '../statement.ts'
import { run } from '../statement.ts'
import type { TaskRow } from '../task-row.ts'
import type { LightStatements } from './postgres-light.ts'

const NOW = 1_000
const id = (n: number) => `t_${String(n).padStart(5, '0')}`
const claimOf = (token: string) => ({ now: NOW, nodeId: 'n_9', token })

let shared: SharedDatabase
let db: TestStore
let light: LightStatements
beforeAll(async () => {
  shared = await SharedDatabase.open(() => createDatabase(inject('postgresUrl')))
  db = shared.db
  light = db.statements.light as LightStatements
})
afterAll(() => shared[Symbol.asyncDispose]())
beforeEach(() => db.clear())

const insert = (...options: RowOptions[]) =>
  db.run(...db.statements.hot.insertTasks(options.map((one) => newTask({ now: NOW, ...one }))))

const claim = (token: string, limit = 500, more: object = {}): Work<{ id: string; light: number }[]> =>
  db.statements.hot.claimTasks({
    ...{ ...claimOf(token), queues: ['default'], names: ['resize'], limit },
    ...more,
  })
const claimed = async (token: string, limit?: number, more?: object) =>
  (await db.work(claim(token, limit, more))).map((task) => task.id).sort()

const inOrder = (a: ClaimPlace, b: ClaimPlace) => (standsBefore(a, b) ? -1 : 1)

/** How the rows of these are stored, whatever readers are told. */
const stored = () =>
  db.sql<{ id: string; status: string; light: number; ready: number; token: string | null }>(
    'select id, status, light, ready, token from {s}tasks order by id',
  )
const count = async (table: string) =>
  Number((await db.sql<{ n: number }>(`select count(*)::int4 as n from {s}${table}`))[0]?.n)

const completed = (row: TaskRow, token: string, output: string): TaskRow =>
  decideTask(row, { type: 'completed', token, output } as never, NOW + 7, 0).draft.row

describe('a light task', () => {
  test('is written when it is stored and when it has completed, and not in between', async () => {
    await insert({ id: id(1) }, { id: id(2) })
    const places = () => db.sql('select id, ctid::text, xmin::text from {s}tasks order by id')
    const before = await places()
    expect(await claimed('a_1')).toEqual([id(1), id(2)])
    expect(await places()).toEqual(before)
    expect(await db.get(id(1))).toEqual(claimedRow(newRow({ id: id(1), now: NOW }), claimOf('a_1')))
    const rows = [id(1), id(2)].map((one) => ({ id: one, token: 'a_1', output: '7', startedAt: NOW }))
    expect(await db.run(light.complete(NOW + 7, 'n_9', rows))).toEqual([])
    expect(await stored()).toMatchObject([
      { status: 'completed', light: 0, ready: 0, token: 'a_1' },
      { status: 'completed', light: 0, ready: 0, token: 'a_1' },
    ])
  })

  const limit = fc.option(fc.integer({ min: 1, max: 100_000 }), { nil: null })
  const anyOptions: fc.Arbitrary<RowOptions[]> = fc
    .array(
      fc.record({
        delayMs: fc.constantFrom(0, 0, 0, 500),
        priority: fc.integer({ min: -2, max: 2 }),
        input: fc.constantFrom('null', JSON.stringify('ä'.repeat(600)), '"\\"\\\\{}"'),
        key: fc.constantFrom(null, null, null, 'k'),
        timeout: limit,
        attemptTimeout: limit,
        queueTimeout: limit,
        heartbeatTimeout: limit,
        grace: fc.constantFrom(0, 5_000),
        retries: fc.constantFrom(0, 3),
      }),
      { minLength: 1, maxLength: 30 },
    )
    .map((list) => list.map((one, i) => ({ ...one, id: id(i), key: one.key && `k${i}` })))

  test('is claimed, read, written out and completed as any other, among others', async () => {
    await fc.assert(
      fc.asyncProperty(anyOptions, fc.infiniteStream(fc.nat({ max: 3 })), async (list, chances) => {
        await db.clear()
        await insert(...list)
        const rows = new Map(list.map((one) => [one.id as string, newRow({ now: NOW, ...one })]))
        const isNext = (row: TaskRow) => row.ready === 1
        const order = [...rows.values()]
          .filter(isNext)
          .sort((a, b) => a.priority - b.priority || (a.id < b.id ? -1 : 1))
        const first = order.slice(0, Math.ceil(order.length / 2))
        expect(await claimed('a_1', first.length || 1)).toEqual(first.map((row) => row.id).sort())
        for (const row of first) rows.set(row.id, claimedRow(row, claimOf('a_1')))
        const expected = () => [...rows.values()]
        expect(await db.all()).toEqual(expected())
        // Some are written out, wherever they are; nobody who reads sees a difference.
        const some = [...rows.keys()].filter(() => chances.next().value > 1)
        await db.run(...light.writeOut(some))
        expect(await db.all()).toEqual(expected())
        for (const { id: one, light: isLight } of await stored())
          if (some.includes(one)) expect(isLight).toBe(0)
        const ends = first.map((row) => ({ id: row.id, token: 'a_1', output: '[1]', startedAt: NOW }))
        expect(await db.run(light.complete(NOW + 7, 'n_9', ends))).toEqual([])
        for (const row of first) rows.set(row.id, completed(rows.get(row.id) as TaskRow, 'a_1', '[1]'))
        expect(await db.all()).toEqual(expected())
        await db.run(light.forgetClaims(['a_1'], []))
        // What has waited all along is there to be claimed, light or not.
        const rest = order.slice(first.length)
        expect(await claimed('a_2')).toEqual(rest.map((row) => row.id).sort())
      }),
      { numRuns: 25 },
    )
  })

  test('is found behind the place where its queue and name begin, before it with a higher priority, elsewhere anywhere', async () => {
    await insert(
      { id: id(1) },
      { id: id(2), priority: -1 },
      { id: id(3) },
      { id: id(4), priority: 1 },
      { id: id(5), name: 'other' },
      { id: id(6) },
    )
    const floors = [{ queue: 'default', name: 'resize', priority: 0, id: id(3) }]
    const both = { names: ['resize', 'other'], floors }
    expect(await claimed('a_1', 2, both)).toEqual([id(2), id(5)])
    expect(await claimed('a_2', 9, { floors })).toEqual([id(4), id(6)])
    expect(await claimed('a_3', 9, both)).toEqual([])
    expect(await claimed('a_4', 9)).toEqual([id(1), id(3)])
  })

  test('is claimed in the same order, wherever claims begin, if nothing stands before that', async () => {
    const kinds = { name: fc.constantFrom('resize', 'other'), queue: fc.constantFrom('default', 'mail') }
    const rows = fc.array(fc.record({ ...kinds, priority: fc.integer({ min: -1, max: 1 }) }), {
      maxLength: 25,
    })
    await fc.assert(
      fc.asyncProperty(
        rows,
        fc.nat({ max: 25 }),
        fc.integer({ min: 1, max: 25 }),
        async (list, first, limit) => {
          await db.clear()
          const named = list.map((one, i) => ({ ...one, id: id(i), attemptTimeout: 60_000 }))
          await insert(...named)
          const all = { names: ['resize', 'other'], queues: ['mail', 'default'] }
          const gone = first === 0 ? [] : await claimed('a_1', first, all)
          const last = new Map<string, ClaimFloor>()
          for (const one of named.filter((task) => gone.includes(task.id)).sort(inOrder))
            last.set(`${one.queue} ${one.name}`, one)
          const left = named.filter((task) => !gone.includes(task.id)).sort(inOrder)
          const next = await claimed('a_2', limit, { ...all, floors: [...last.values()] })
          expect(next).toEqual(
            left
              .slice(0, limit)
              .map((one) => one.id)
              .sort(),
          )
        },
      ),
      { numRuns: 60 },
    )
  })

  test('that has limits which fall soon is none, nor is one with a key, one that waits for time, one below an agent', async () => {
    await insert(
      { id: id(1), attemptTimeout: 20_000 },
      { id: id(2), heartbeatTimeout: 1_000 },
      { id: id(3), key: 'a' },
      { id: id(4), delayMs: 1 },
      { id: id(5), attemptTimeout: 60_000, timeout: 10 },
    )
    expect((await stored()).map((row) => row.light)).toEqual([0, 0, 0, 0, 1])
  })

  test('completes once: not when it was cancelled, not for another, not again', async () => {
    await insert({ id: id(1) }, { id: id(2) })
    await claimed('a_1')
    const end = (one: string, token = 'a_1') =>
      db.run(light.complete(NOW, 'n_9', [{ id: one, token, output: '1', startedAt: NOW }]))
    await db.work(
      (function* () {
        const [row] = yield* lockTasks(db.statements, [id(1)])
        const { draft } = decideTask(row as TaskRow, { type: 'cancel' } as never, NOW, 0)
        yield* run(db.statements.updateTasks([draft.row]))
      })(),
    )
    expect(await end(id(1))).toEqual([{ id: id(1) }])
    expect((await db.get(id(1))).status).toBe('cancelled')
    expect(await end(id(2))).toEqual([])
    expect(await end(id(2))).toEqual([{ id: id(2) }])
    await insert({ id: id(3) })
    await claimed('a_2')
    await db.run(...light.writeOut([id(3)]))
    expect(await end(id(3), 'a_3')).toEqual([{ id: id(3) }])
  })

  test('counts as running where a queue has a limit, and then becomes a row like any other', async () => {
    await insert(...Array.from({ length: 5 }, (_, n) => ({ id: id(n) })))
    await db.sql(`insert into {s}nodes values ('n_9', 1, 'h', 1, 0, 0, 0)`)
    const live = async () => Number((await db.run(db.statements.liveCount('default')))[0]?.count)
    await claimed('a_1', 2)
    expect(await live()).toBe(2)
    expect(await claimed('a_2', 2, { counted: true })).toEqual([id(2), id(3)])
    expect(await live()).toBe(4)
    expect((await stored()).map((row) => row.light)).toEqual([1, 1, 0, 0, 1])
    await db.run(light.writeOutOf('n_9'))
    expect(await live()).toBe(4)
    expect(await db.run(db.statements.liveAttempts('n_9'))).toHaveLength(4)
  })

  test('of a process that is given up, or has forgotten it, is written out', async () => {
    await insert(...Array.from({ length: 4 }, (_, n) => ({ id: id(n) })))
    await claimed('a_1', 2)
    await claimed('a_2', 1, { nodeId: 'n_8', now: NOW + 5 })
    const attempts = (await db.run(db.statements.liveAttempts('n_9'))).map((row) => row.id)
    expect(attempts.sort()).toEqual([id(0), id(1)])
    await db.run(light.writeOutOf('n_9'))
    expect((await db.run(db.statements.liveTasks('n_9', 9))).map((row) => row.id)).toEqual([id(0), id(1)])
    await db.run(light.writeOutBefore(NOW + 5))
    expect((await stored()).map((row) => row.light)).toEqual([0, 0, 1, 1])
    await db.run(light.writeOutBefore(NOW + 6))
    expect((await stored()).map((row) => row.light)).toEqual([0, 0, 0, 1])
    expect(await count('light_claims')).toBe(0)
  })

  test('that neither waits nor runs waits for nothing, and is begun again', async () => {
    await insert({ id: id(1) }, { id: id(2) }, { id: id(3) })
    await claimed('a_1', 1)
    await db.sql(`delete from {s}light_ready where id = '${id(2)}'`)
    const swept = await db.run(db.statements.sweepTasks('', 9))
    expect(swept.map(({ ready, live }) => [ready, live])).toEqual([
      [0, 1],
      [0, 0],
      [1, 0],
    ])
    await db.run(...light.writeOut([id(2)]))
    expect(await claimed('a_2')).toEqual([id(2), id(3)])
  })
})

describe('while a claim is under way', () => {
  const held: Statement = { sql: 'select pg_advisory_xact_lock_shared(7)', params: [] }

  /** A claim that is answered and does not come to its end until `other` lets it. */
  async function claiming(then: 'commits' | 'fails') {
    await shared.other.query('select pg_advisory_lock(7)')
    const ended = db.store
      .write(null, function* () {
        const tasks = yield* claim('a_1', 1)
        yield* run(held)
        if (then === 'fails') throw new Error('it fails')
        return tasks
      })
      .catch((error: Error) => error.message)
    await shared.untilWaiting('advisory')
    return { ended, letGo: () => shared.other.query('select pg_advisory_unlock(7)') }
  }

  test.each(['commits', 'fails'] as const)('whoever decides waits until it %s', async (then) => {
    await insert({ id: id(1) })
    const { ended, letGo } = await claiming(then)
    const deciding = db.work(lockTasks(db.statements, [id(1)]))
    await shared.untilWaiting('transactionid')
    await letGo()
    const row = newRow({ id: id(1), now: NOW })
    const [decided] = await deciding
    expect({ ...decided }).toEqual(then === 'commits' ? claimedRow(row, claimOf('a_1')) : row)
    await ended
    expect(await db.get(id(1))).toEqual(decided)
    expect(await claimed('a_2')).toEqual(then === 'commits' ? [] : [id(1)])
  })

  test('whoever fires what is due passes it by, and does not take it for lost', async () => {
    await insert({ id: id(1) }, { id: id(2) })
    const { ended, letGo } = await claiming('commits')
    const free = await db.work(
      (function* () {
        return yield* withoutClaimed(db.statements, yield* run(db.statements.lockTasks([id(1), id(2)])))
      })(),
    )
    expect(free).toEqual([newRow({ id: id(2), now: NOW })])
    await letGo()
    await ended
    expect(await db.get(id(1))).toMatchObject({ status: 'running', token: 'a_1' })
    expect((await stored()).map((row) => row.light)).toEqual([1, 0])
  })

  test('others claim what it has not got, and readers do not wait', async () => {
    await insert({ id: id(1) }, { id: id(2) })
    const { ended, letGo } = await claiming('commits')
    expect(await claimed('a_2')).toEqual([id(2)])
    expect((await db.get(id(1))).status).toBe('pending')
    expect((await db.get(id(2))).status).toBe('running')
    await letGo()
    await ended
    expect((await db.get(id(1))).token).toBe('a_1')
  })

  test('a row that somebody has locked is claimed without waiting, and decided about as running', async () => {
    await insert({ id: id(1) })
    await shared.other.query('begin')
    await shared.other.query('select 1 from curfew.tasks for update')
    // Of a queue with a limit it is left alone: whoever has it may be about to write it out.
    expect(await claimed('a_0', 1, { counted: true })).toEqual([])
    expect(await claimed('a_1')).toEqual([id(1)])
    await shared.other.query('rollback')
    expect((await db.work(lockTasks(db.statements, [id(1)])))[0]).toMatchObject({
      status: 'running',
      token: 'a_1',
    })
  })
})

test('what somebody is about to end is not waited for to be written out, and its claim stays', async () => {
  await insert({ id: id(1) }, { id: id(2) }, { id: id(3) })
  await claimed('a_1', 2)
  await claimed('a_2', 1)
  const attempts = [id(1), id(2)].map((one) => ({ id: one, token: 'a_1', startedAt: NOW }))
  const last = { id: id(3), token: 'a_2', startedAt: NOW }
  const writeOut = async (some: typeof attempts) => {
    await db.run(light.writeOutClaimedFree('n_9', some))
    return db.run(light.forgetClaims(['a_1', 'a_2'], some))
  }
  await shared.other.query('begin')
  await shared.other.query('select 1 from curfew.tasks where id = $1 for update', [id(1)])
  expect(await writeOut([...attempts, last])).toEqual([{ token: 'a_1' }])
  expect((await stored()).map((row) => row.light)).toEqual([1, 0, 0])
  expect(await db.sql('select token from {s}light_claims')).toEqual([{ token: 'a_1' }])
  await shared.other.query('rollback')
  expect(await writeOut(attempts)).toEqual([])
  expect((await stored()).map((row) => row.light)).toEqual([0, 0, 0])
  expect(await count('light_claims')).toBe(0)
})

test('claims of light tasks and of others, by several at once, get each of them once', async () => {
  await insert(
    ...Array.from({ length: 400 }, (_, n) => ({
      id: id(n),
      priority: n % 3,
      key: n % 5 === 0 ? `k${n}` : null,
    })),
  )
  const claimers = Array.from({ length: 4 }, async (_, i) => {
    const mine: string[] = []
    for (let round = 0, empty = 0; empty < 3; round++) {
      const got = await claimed(`a_${i}_${round}`, 7)
      expect(got.length).toBeLessThanOrEqual(7)
      mine.push(...got)
      empty = got.length === 0 ? empty + 1 : 0
    }
    return mine
  })
  const all = (await Promise.all(claimers)).flat()
  expect(all.sort()).toEqual(Array.from({ length: 400 }, (_, n) => id(n)))
  expect(await count('light_ready')).toBe(0)
})

test('what was scheduled with a long input is claimed with it', async () => {
  const input = JSON.stringify('x'.repeat(10_000))
  await insert({ id: id(1), input })
  expect(await db.work(claim('a_1'))).toMatchObject([{ id: id(1), input, light: 1 }])
  await db.run(...light.writeOut([id(1)]))
  expect((await db.get(id(1))).input).toBe(input)
})
