/** A proxy between workers, clients and their manager: under a path of its own, and with a limit of its own. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect } from 'vitest'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { task } from './curfew.ts'

/** Answers where it listens. `under`: taken off each path. `mostBytes`: of a request. */
async function proxyTo(
  wire: WireWorld,
  url: string,
  { under = '', mostBytes = Infinity }: { under?: string; mostBytes?: number },
): Promise<{ url: string; seen: string[] }> {
  const seen: string[] = []
  const pass = async (from: IncomingMessage, to: ServerResponse) => {
    const { url: path = '', method, headers } = from
    seen.push(path)
    const body = Buffer.concat(await from.toArray())
    if (!path.startsWith(`${under}/`)) return to.writeHead(404).end('no such page')
    if (body.length > mostBytes) return to.writeHead(413, { 'content-type': 'text/html' }).end('<h1>413</h1>')
    const on = request(new URL(path.slice(under.length), url), { method, headers }, (answer) => {
      to.writeHead(answer.statusCode ?? 500, answer.headers)
      answer.pipe(to)
    })
    on.on('error', () => to.destroy())
    to.on('close', () => on.destroy())
    return on.end(body)
  }
  const server = createServer((from, to) => void pass(from, to).catch(() => to.destroy()))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  wire.atEnd(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${under}`, seen }
}

const echo = task({ name: 'echo', run: (value: unknown) => value })
const long = task({ name: 'long', run: (length: number) => 'x'.repeat(length) })

onEachWire(
  'a proxy before a manager',
  (test) => {
    test.for(['/curfew', '/curfew/'])('may have it under a path of its own: %s', async (end, { wire }) => {
      const manager = await wire.manager()
      const { url, seen } = await proxyTo(wire, manager.url as string, { under: '/curfew' })
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
      const { url } = await proxyTo(wire, manager.url as string, { mostBytes: 100_000 })
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
  },
  ['file'],
)
