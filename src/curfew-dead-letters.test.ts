/** How long dead letters are kept. */
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { DeadLetterBody } from './core/note.ts'
import type { TaskContext } from './curfew.ts'
import { task } from './curfew.ts'
import type { AttemptCommands, CommandTask } from './worker/command-task.ts'

const letter: DeadLetterBody = { errorType: 'timeout', message: 'late', history: [1] }
const notes = {
  ...task({ name: 'notes', retention: '1h', run: () => null }),
  commands: true,
  run: async (resolved: boolean, { taskId: jobId }: TaskContext, commands?: AttemptCommands) => {
    const letters = ['item-0', 'item-1', 'item-2'].map((itemId) => ({ jobId, itemId, letter }))
    await commands?.note({ events: [], letters })
    if (resolved) await commands?.note({ events: [], letters: [{ jobId, itemId: 'item-1', letter: null }] })
  },
} as unknown as CommandTask

onEachStore(
  'dead letters',
  (test) => {
    test('open ones outlive their run; the others are removed after 7 days', async ({ world }) => {
      const curfew = await world.open({ tasks: [notes] })
      const handle = await curfew.schedule(notes, true as never)
      await handle.result()
      await curfew.deadLetters.discard(handle.id, { itemIds: ['item-2'] })
      const states = async () =>
        (await curfew.deadLetters.list()).letters.map(({ itemId, state }) => `${itemId} ${state}`)
      const all = ['item-0 open', 'item-1 resolved', 'item-2 discarded']
      for (let day = 0; day < 6; day++) await world.clock.advance('1d')
      await expect(handle.view()).rejects.toMatchObject({ code: 'not_found' })
      expect(await states()).toEqual(all)
      for (let day = 0; day < 2; day++) await world.clock.advance('1d')
      expect(await states()).toEqual(['item-0 open'])
    })
  },
  ['file', 'postgres'],
)
