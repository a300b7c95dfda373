/** A proxy between workers, clients and their manager: under a path of its own, with a limit of its own, slow. */
import { expect } from 'vitest'
import { httpProxy } from '../scripts/acceptance/http-proxy.ts'
import { tcpProxy } from '../scripts/acceptance/tcp-proxy.ts'
import { onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { task } from './curfew.ts'

const echo = task({ name: 'echo', run: (value: unknown) => value })
const long = task({ name: 'long', run: (length: number) => 'x'.repeat(length) })

onEachWire(
  'a proxy before a manager',
  (test) => {
    test.for(['/curfew', '/curfew/'])('may have it under a path of its own: %s', async (end, { wire }) => {
      const manager = await wire.manager()
      const { url, seen, close } = await httpProxy(manager.url as string, { under: '/curfew' })
      wire.atEnd(close)
      const address = url.replace('/curfew', end)
      await wire.work(address, { tasks: [echo] })
      const client = await wire.connect(address)
      expect(await (await client.schedule(echo, 1)).result()).toBe(1)
      // What is sent by hand, by the library and by the thread of the beats.
      await until(() =>
        ['Attach', 'Schedule', 'Report', 'Beat'].every((one) => seen.some((path) => path.endsWith(one))),
      )
      expect(seen.filter((path) => !/^\/curfew\/curfew\.v1\.\w+\/\w+$/.test(path))).toEqual([])
    })

    test('may let less through than it takes: reports go one by one, and what is too large says so', async ({
      wire,
    }) => {
      const manager = await wire.manager()
      const { url, close } = await httpProxy(manager.url as string, {
        refuse: (_, bytes) => (bytes > 100_000 ? 413 : null),
      })
      wire.atEnd(close)
      await wire.work(url, { tasks: [long], concurrency: 20 })
      const handles = await manager.scheduleMany(long, [...Array(20).fill(40_000), 200_000])
      const outcomes = await Promise.allSettled(handles.map((handle) => handle.result({ timeout: '20s' })))
      expect(outcomes.slice(0, 20).map(({ status }) => status)).toEqual(Array(20).fill('fulfilled'))
      expect(outcomes[20]).toMatchObject({ reason: { failure: { code: 'report_refused' } } })
      const client = await wire.connect(url)
      await expect(client.schedule(long, 'x'.repeat(200_000) as never)).rejects.toMatchObject({
        code: 'too_big',
        message: expect.stringMatching(/proxy/),
      })
      expect(client.counters.retries).toBe(0)
    })

    test('may not let a worker introduce itself: it is told, and does not ask for ever', async ({ wire }) => {
      const manager = await wire.manager()
      const { url, close } = await httpProxy(manager.url as string, {
        refuse: (path) => (path.endsWith('/Attach') ? 413 : null),
      })
      wire.atEnd(close)
      await expect(wire.work(url, { tasks: [echo] })).rejects.toMatchObject({ code: 'too_big' })
    })

    test('may be slow: a worker waits for work that takes long to arrive', async ({ wire }) => {
      const manager = await wire.manager()
      const proxy = await tcpProxy(manager.url as string)
      wire.atEnd(() => proxy.close())
      await wire.work(proxy.url, { tasks: [echo] })
      proxy.slow(10_000)
      const { id } = await manager.schedule(echo, 'x'.repeat(70_000))
      expect(await manager.task<string>(id).result({ timeout: '20s' })).toHaveLength(70_000)
      expect(wire.log.filter(({ message }) => /no manager/.test(message))).toEqual([])
    })
  },
  ['file'],
)
