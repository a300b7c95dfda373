/** A program that asks for very much at once does not run out of connections. */
import type { Socket } from 'node:net'
import { connect, createServer } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { Curfew, task } from './curfew.ts'

/** Between a client and a manager; counts what is open at the same time. */
async function countingProxy(url: string) {
  const { port } = new URL(url)
  const open = new Set<Socket>()
  const counts = { most: 0, all: 0 }
  const server = createServer((socket) => {
    const onwards = connect(Number(port), '127.0.0.1')
    open.add(socket)
    counts.all++
    counts.most = Math.max(counts.most, open.size)
    for (const one of [socket, onwards]) one.on('error', () => undefined) // the other end says it
    socket.on('close', () => {
      open.delete(socket)
      onwards.destroy()
    })
    onwards.on('close', () => socket.destroy())
    socket.pipe(onwards).pipe(socket)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  return { counts, url: `http://127.0.0.1:${(server.address() as { port: number }).port}` }
}

test('thousands of calls and of waits at once share a hundred connections or two, and each has its answer', async () => {
  const gate = Promise.withResolvers<void>()
  const double = task({ name: 'double', run: (n: number) => n * 2 })
  const last = task({ name: 'last', queue: 'slow', run: () => gate.promise.then(() => 'last') })
  await using curfew = await Curfew.open({
    ...{
      store: ':memory:',
      tasks: [double, last],
      queues: { slow: { concurrency: 100 } },
      concurrency: 400,
      listen: '127.0.0.1:0',
    },
  })
  const { url, counts } = await countingProxy(curfew.url as string)
  const client = await Curfew.connect(url)
  onTestFinished(() => client.close())
  // They are waited for until long after the others have come; most of them do not even run before.
  const held = await client.scheduleMany(last, new Array(6_000).fill(undefined))
  const waiting = Promise.all(held.map((handle) => handle.result()))
  const limited = Promise.all(held.map((handle) => handle.result({ timeout: 50 }).catch(({ code }) => code)))
  expect(new Set(await limited)).toEqual(new Set(['wait_timed_out']))
  const numbers = Array.from({ length: 1_200 }, (_, n) => n)
  const results = await Promise.all(
    numbers.map(async (n) => {
      const handle = await client.schedule(double, n)
      return handle.result()
    }),
  )
  expect(results).toEqual(numbers.map((n) => n * 2))
  gate.resolve()
  expect(new Set(await waiting)).toEqual(new Set(['last']))
  // What is there is told however little time there is.
  const again = await Promise.all(held.map((handle) => handle.result({ timeout: 1 })))
  expect([new Set(again), await held[0]?.result({ timeout: 1 })]).toEqual([new Set(['last']), 'last'])
  expect(counts.most).toBeGreaterThan(100)
  expect(counts.most).toBeLessThanOrEqual(170)
})

test('results and watches that come one after the other share a connection', async () => {
  const double = task({ name: 'double', run: (n: number) => n * 2 })
  await using curfew = await Curfew.open({ store: ':memory:', tasks: [double], listen: '127.0.0.1:0' })
  const { url, counts } = await countingProxy(curfew.url as string)
  const client = await Curfew.connect(url)
  onTestFinished(() => client.close())
  for (let n = 0; n < 30; n++) expect(await (await client.schedule(double, n)).result()).toBe(2 * n)
  expect(counts.all).toBeLessThanOrEqual(3)
  for (let n = 0; n < 30; n++) {
    const handles = await client.scheduleMany(double, [n, n + 1])
    expect(await Promise.all(handles.map((handle) => handle.result()))).toEqual([2 * n, 2 * n + 2])
    for await (const { final } of client.watch(handles[0]!.id)) expect(final).toBe(true)
  }
  expect(counts.all).toBeLessThanOrEqual(5)
})
