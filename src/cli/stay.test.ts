import { expect, test } from 'vitest'
import { TestIo } from './fixtures/test-io.ts'
import type { Staying } from './stay.ts'
import { stay } from './stay.ts'

/** What it does with what it runs, and what it says, in order. */
function world() {
  const io = new TestIo({ cwd: '/' })
  const failed = Promise.withResolvers<never>()
  const closing = Promise.withResolvers<void>()
  const running: Staying = {
    failed: failed.promise,
    close: (options) => {
      io.stderr.write(`close ${JSON.stringify(options ?? {})}\n`)
      return closing.promise
    },
  }
  return { io, running, failed, closing, seen: () => io.err.trimEnd().split('\n') }
}

/** A signal that nobody hears any more. */
function expectIgnored(io: TestIo): void {
  const before = io.err
  io.send('SIGTERM')
  io.send('SIGTERM')
  expect({ err: io.err, exited: io.exitedNow }).toEqual({ err: before, exited: null })
}

test('the first signal drains, and it ends when everything is closed', async () => {
  const { io, seen, running, closing } = world()
  const staying = stay(io, 30_000, async () => running)
  io.send('SIGTERM')
  closing.resolve()
  await staying
  expect(seen()).toEqual([
    'SIGTERM: draining for up to 30s; a second signal stops now',
    'close {"drain":30000}',
  ])
  expectIgnored(io)
})

test('without time to drain it stops at once', async () => {
  const { io, seen, running, closing } = world()
  const staying = stay(io, 0, async () => running)
  io.send('SIGINT')
  closing.resolve()
  await staying
  expect(seen()).toEqual(['SIGINT: stopping; a second signal stops now', 'close {"drain":false}'])
})

test('the second signal ends the process while the first is at work', async () => {
  const { io, seen, running, closing } = world()
  const staying = stay(io, 30_000, async () => running)
  io.send('SIGTERM')
  await io.printed(/close/)
  io.send('SIGINT')
  expect(seen().slice(2)).toEqual(['SIGINT again: stopping now'])
  expect(io.exitedNow).toBe(130)
  closing.resolve()
  await staying
})

test('a signal while it starts counts, and a second ends it there', async () => {
  const { io, seen, running, closing } = world()
  const started = Promise.withResolvers<Staying>()
  const staying = stay(io, 1_000, () => started.promise)
  io.send('SIGTERM')
  expect(io.err).toBe('')
  io.send('SIGTERM')
  expect(seen()).toEqual(['SIGTERM again: stopping now'])
  expect(io.exitedNow).toBe(130)
  started.resolve(running)
  closing.resolve()
  await staying
  expect(seen().slice(1)).toEqual([
    'SIGTERM: draining for up to 1s; a second signal stops now',
    'close {"drain":1000}',
  ])
})

test('what cannot go on is closed, and the error is told', async () => {
  const { io, seen, running, failed, closing } = world()
  const staying = stay(io, 30_000, async () => running)
  failed.reject(new Error('the store failed'))
  closing.resolve()
  await expect(staying).rejects.toThrow('the store failed')
  expect(seen()).toEqual(['close {}'])
  expectIgnored(io)
})

test('what cannot start is an error, and nothing listens for signals any more', async () => {
  const { io } = world()
  await expect(stay(io, 0, () => Promise.reject(new Error('in use')))).rejects.toThrow('in use')
  expectIgnored(io)
})
