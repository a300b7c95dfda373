import { onEachStore } from '../scripts/acceptance/world.ts'
import { task } from './curfew.ts'
onEachStore('dbg', (test) => {
  test('x', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      attemptTimeout: '5s',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang] })
    const start = world.now
    const push = world.log.push.bind(world.log); world.log.push = (l: any) => { console.log(world.now - start, l.message, JSON.stringify(l.fields)); return push(l) }
    const orig = clock.setTimer.bind(clock); clock.setTimer = (ms: number, cb: any, o: any = {}) => { console.log(world.now - start, 'timer', ms, o.background, new Error().stack?.split('\n')[2]); return orig(ms, cb, o) }
    const handle = await curfew.schedule(hang, null)
    await clock.advance('1m')
    for (const e of await handle.events()) console.log(e.at - start, JSON.stringify(e))
    console.log(JSON.stringify(world.log))
  })
}, ['postgres'])
