/** Dead letters over the wire are what they are in one process. */
import { expect } from 'vitest'
import type { AnyClient } from '../scripts/acceptance/both-ways.ts'
import { bothWays, shapeOf } from '../scripts/acceptance/both-ways.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { DeadLetterBody, DeadLetterNote } from './core/note.ts'
import type { TaskContext } from './curfew.ts'
import { Curfew, CurfewError, task } from './curfew.ts'
import type { AttemptCommands, CommandTask } from './worker/command-task.ts'

/** Notes what it is given, as a map-reduce does of its items, and then stays until it is let go. */
function worksOf(gates: Gates) {
  const notes = {
    ...task({ name: 'notes', grace: '1s', run: () => null }),
    commands: true,
    run: async (name: string, { signal, taskId }: TaskContext, commands?: AttemptCommands) => {
      const letters = (await gates.pass(name, signal)) as (Partial<DeadLetterNote> &
        Pick<DeadLetterNote, 'letter'>)[]
      const notes = letters.map((one, i) => ({ jobId: taskId, itemId: `item-${i}`, ...one }))
      await commands?.note({ events: [], letters: notes })
      return gates.pass(`${name} ends`, signal)
    },
  } as unknown as CommandTask
  return { tasks: [notes], notes }
}

const body = (more: Partial<DeadLetterBody> = {}): DeadLetterBody => ({
  ...{ errorType: 'timeout', message: 'it \0 timed out', name: 'größe.md', item: { a: [null, 1.5, 'ß'] } },
  ...{ timeout: { kind: 'agent', limitMs: 2_000 }, history: [{ attempt: 1 }], eligible: true },
  ...more,
})

async function giveUp(
  client: AnyClient,
  gates: Gates,
  notes: CommandTask,
  letters: { letter: DeadLetterBody }[],
) {
  const { id: jobId } = await client.schedule(notes, 'first' as never)
  gates.open('first', letters)
  await until(async () => (await client.deadLetters.list({ jobId })).letters.length === letters.length)
  return jobId
}

const LETTERS = [
  { letter: body() },
  { letter: body({ errorType: 'failure', message: 'it broke', history: [1, 2] }) },
  { letter: body({ errorType: 'conflict', name: undefined }) },
]

onEachWire('dead letters over the wire', (test, kind) => {
  test('H1: they are listed, in pages, and shown with all that was noted', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { notes }) => {
      const jobId = await giveUp(client, gates, notes, LETTERS)
      const { deadLetters } = client
      const first = await deadLetters.list({ limit: 2 })
      const rest = await deadLetters.list({ ...(first.cursor && { cursor: first.cursor }), limit: 2 })
      const shown = await deadLetters.get(jobId, 'item-0')
      const whole: unknown[] = []
      for await (const { body } of deadLetters.read(jobId)) whole.push(body)
      expect(shown.body).toEqual(body())
      expect([...first.letters, ...rest.letters].map(({ itemId, attempts }) => [itemId, attempts])).toEqual([
        ...[['item-0', 1] as const, ['item-1', 2] as const, ['item-2', 1] as const],
      ])
      return { first, rest, shown, whole, none: await shapeOf(deadLetters.get(jobId, 'item-9')) }
    })
  })

  test('H2: filters; discarded ones are no longer open', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { notes }) => {
      const jobId = await giveUp(client, gates, notes, LETTERS)
      const { deadLetters } = client
      const items = async (options: Parameters<typeof deadLetters.list>[0]) =>
        (await deadLetters.list(options)).letters.map(({ itemId, state }) => [itemId, state])
      const timeouts = await items({ jobId, errorType: 'timeout' })
      expect(timeouts).toEqual([['item-0', 'open']])
      const discarded = [
        await deadLetters.discard(jobId, { errorType: 'conflict' }),
        await deadLetters.discard(jobId, { itemIds: ['item-0'] }),
      ]
      return {
        timeouts,
        discarded,
        open: await items({ state: 'open' }),
        gone: await items({ state: 'discarded' }),
        errors: [
          await shapeOf(deadLetters.discard(jobId, { itemIds: ['item-7'] })),
          await shapeOf(deadLetters.discard(jobId, { itemIds: [] })),
          await shapeOf(deadLetters.list({ state: 'opn' as never })),
          await shapeOf(deadLetters.list({ cursor: 'nonsense' })),
          await shapeOf(deadLetters.list({ limit: 0 })),
        ],
      }
    })
  })

  test('H2, H3: a run takes them, others are refused until it has ended; it resolves or opens them again', async ({
    wire,
  }) => {
    await bothWays(wire, worksOf, async (client, gates, { notes }) => {
      const jobId = await giveUp(client, gates, notes, LETTERS)
      const { deadLetters } = client
      const { id: retryId } = await client.schedule(notes, 'second' as never)
      const claimed = await deadLetters.claim(jobId, { itemIds: ['item-0', 'item-1'], retryId })
      const refused = [
        await shapeOf(deadLetters.claim(jobId, { retryId: 'w_other' })),
        await shapeOf(deadLetters.discard(jobId, { itemIds: ['item-1'] })),
      ]
      gates.open('second', [
        { jobId, letter: null },
        { jobId, letter: body({ history: [1, 2, 3] }) },
        // Not taken: it is none of its business.
        { jobId, letter: null },
      ])
      await until(async () => (await deadLetters.list({ state: 'resolved' })).letters.length === 1)
      gates.open('second ends')
      await client.task(retryId).result()
      const after = (await deadLetters.list()).letters
      const again = await deadLetters.claim(jobId, { retryId: 'w_other' })
      expect(after.map(({ state, attempts }) => [state, attempts])).toEqual([
        ...[['resolved', 1] as const, ['open', 3] as const, ['open', 1] as const],
      ])
      expect(again.map(({ itemId }) => itemId)).toEqual(['item-1', 'item-2'])
      return { claimed: claimed.map(({ body, ...head }) => [head, body]), refused, after, again }
    })
  })

  test('H3: of many that claim at once one has them', async ({ wire }) => {
    const gates = new Gates()
    const { tasks, notes } = worksOf(gates)
    const manager = await wire.open({ tasks })
    const peers = kind === 'postgres' ? [await wire.manager(), await wire.manager()] : []
    const clients = [manager, await wire.connect(manager), ...peers]
    const jobId = await giveUp(manager, gates, notes, LETTERS)
    const results = await Promise.allSettled(
      Array.from({ length: 12 }, (_, i) =>
        clients[i % clients.length]?.deadLetters.claim(jobId, { retryId: `w_${i}` }),
      ),
    )
    const won = results.flatMap((one, i) => (one.status === 'fulfilled' ? [i] : []))
    expect(won).toHaveLength(1)
    for (const result of results)
      if (result.status === 'rejected')
        expect(result.reason).toMatchObject({ code: 'being_retried', fields: { retryId: `w_${won[0]}` } })
    const { letters } = await manager.deadLetters.list()
    expect(new Set(letters.map(({ retryId }) => retryId))).toEqual(new Set([`w_${won[0]}`]))
  })

  test('a store that is only read shows them, and changes none', async ({ wire }) => {
    const gates = new Gates()
    const { tasks, notes } = worksOf(gates)
    const manager = await wire.open({ tasks })
    const jobId = await giveUp(manager, gates, notes, LETTERS)
    const shown = await manager.deadLetters.get(jobId, 'item-1')
    await manager.close()
    await using reader = await Curfew.read(wire.store, { logger: wire.logger })
    expect((await reader.deadLetters.list()).letters).toHaveLength(3)
    expect(await reader.deadLetters.get(jobId, 'item-1')).toEqual(shown)
    for (const changes of [
      () => reader.deadLetters.discard(jobId),
      () => reader.deadLetters.claim(jobId, { retryId: 'w_1' }),
    ])
      await expect(changes()).rejects.toMatchObject({ code: 'read_only', constructor: CurfewError })
  })
})
