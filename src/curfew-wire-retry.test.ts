/** X5 over real connections: how a client asks again, and what it counts. */
import type { Server } from 'node:net'
import { createServer } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { Curfew, task } from './curfew.ts'

/** Takes connections and cuts them. */
async function cutting(onConnection: () => void): Promise<Server> {
  const server = createServer((socket) => {
    onConnection()
    socket.on('error', () => undefined) // it is cut anyway
    socket.destroy()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return server
}

const urlOf = (server: Server) => `http://127.0.0.1:${(server.address() as { port: number }).port}`

test('X5: a request is sent three more times, then it is told that nobody answers, and counted', async () => {
  let connections = 0
  const server = await cutting(() => connections++)
  const client = await Curfew.connect(urlOf(server))
  onTestFinished(() => client.close())
  await expect(client.list()).rejects.toMatchObject({
    code: 'unreachable',
    fields: { urls: [urlOf(server)] },
  })
  expect(connections).toBe(4)
  expect(client.counters).toEqual({ requests: 1, retries: 3, failures: 1, reconnects: 0, orphaned: 0 })
})

test('X5: of several managers the next one is asked, from then on first, and what is sent again is done once', async () => {
  let connections = 0
  const first = await cutting(() => connections++)
  const hello = task({ name: 'hello', run: (n: number) => n + 1 })
  await using curfew = await Curfew.open({ store: ':memory:', tasks: [hello], listen: '127.0.0.1:0' })
  const client = await Curfew.connect([urlOf(first), curfew.url as string], { tasks: [hello] })
  onTestFinished(() => client.close())
  const handle = await client.schedule(hello, 1)
  expect(await handle.result()).toBe(2)
  expect((await client.list()).tasks.map(({ id }) => id)).toEqual([handle.id])
  expect(connections).toBe(1)
  expect(client.counters).toMatchObject({ retries: 1, failures: 0, orphaned: 0 })
})

test('a manager that is not called that says so at once, also over a stream', async () => {
  const hello = task({ name: 'hello', run: (n: number) => n + 1 })
  await using curfew = await Curfew.open({ store: ':memory:', tasks: [hello], listen: '127.0.0.1:0' })
  const { id } = await curfew.schedule(hello, 1)
  const client = await Curfew.connect((curfew.url as string).replace('127.0.0.1', '0.0.0.0'))
  onTestFinished(() => client.close())
  const watch = async () => {
    for await (const _ of client.watch(id)) throw new Error('it answers')
  }
  const handle = client.task(id)
  for (const call of [
    client.list(),
    watch(),
    handle.result(),
    Promise.all([handle.result(), handle.result()]),
  ])
    await expect(call).rejects.toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('its hosts'),
    })
  expect(client.counters).toMatchObject({ retries: 0, orphaned: 0 })
})
