// Agents while PostgreSQL refuses to do anything.

import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import { agent, task } from './curfew.ts'

onEachStore(
  'agents whose store is away',
  (test) => {
    test('a turn that schedules into a queue nobody knows yet waits until the store is back', async ({
      world,
    }) => {
      const work = task({ name: 'work', run: (n: number) => n })
      const schedules = agent({
        name: 'schedules',
        run: async (_: null, ctx) => {
          const known = ctx.schedule(work, 1)
          const fresh = ctx.schedule(work, 2, { queue: 'fresh' })
          return ctx.all([known, fresh])
        },
      })
      await world.open()
      await world.sql(`create function curfew.refuse() returns trigger language plpgsql as
        $$ begin raise exception 'the server shuts down' using errcode = '57P03'; end $$`)
      await world.sql(`create trigger refuse before insert on curfew.queues
        for each row when (new.name = 'fresh') execute function curfew.refuse()`)
      const curfew = await world.open({ tasks: [work], agents: [schedules] })
      const handle = await curfew.start(schedules, null)
      await world.runFor(5)
      expect(await handle.status()).toBe('running')
      await world.sql('drop trigger refuse on curfew.queues')
      await world.sql('drop function curfew.refuse')
      await world.runFor(5)
      expect(await handle.result()).toEqual([1, 2])
      expect((await handle.explain()).journal?.turns).toBe(2)
    })
  },
  ['postgres'],
)
