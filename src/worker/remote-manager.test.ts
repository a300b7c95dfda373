import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { create } from '@bufbuild/protobuf'
import { expect, test, vi } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { Curfew, task } from '../curfew.ts'
import type { AttachResponse } from '../wire/gen/curfew/v1/workers_pb.ts'
import { ReportResponseSchema, WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import { startHttpServer } from '../wire/http-server.ts'
import { answerToWire, down, downToWire } from '../wire/worker-messages.ts'

const quiet = { debug() {}, info() {}, warn() {}, error() {} }

/**
 * A manager whose lease can be as old as one likes. `standsStill`: it takes reports, and answers none; `beatsBehind`: it
 * answers a beat when so many more have come; `forgets`: it answers a goodbye when two beats behind it were told that
 * nobody knows this worker.
 */
async function startManager(
  leaseAge: () => number,
  { standsStill = false, beatsBehind = 0, forgets = false } = {},
) {
  const sent: AttachResponse[] = []
  let wake = () => {} // whoever waits in the stream
  const send = (message: AttachResponse) => {
    sent.push(message)
    wake()
  }
  const reports: string[] = []
  const beats: (() => void)[] = []
  let attached = 0
  let beatsToLeave = Infinity
  const left = Promise.withResolvers<void>()
  const server = await startHttpServer({
    ...{ address: { type: 'tcp', host: '127.0.0.1', port: 0 }, clock: new SystemClock(), logger: quiet },
    ...{
      started: Promise.resolve(),
      ready: () => true,
      metrics: async () => ({ text: '', contentType: 'text/plain' }),
    },
    routes: (router) => {
      router.service(WorkerService, {
        async *attach(_request, { signal }) {
          attached++
          signal.addEventListener('abort', () => wake())
          while (!signal.aborted) {
            const next = sent.shift()
            yield next ?? down('ping', { $typeName: 'curfew.v1.Ping' })
            if (sent.length > 0) continue
            const over = setTimeout(() => wake(), 1_000)
            await new Promise<void>((resolve) => {
              wake = resolve
            })
            clearTimeout(over)
          }
        },
        report: async ({ reports: said }, { signal }) => {
          reports.push(...said.map(({ taskId, what }) => `${taskId} ${what.case}`))
          if (standsStill) await once(signal, 'abort')
          return create(ReportResponseSchema, { answers: said.map(() => answerToWire({ type: 'accepted' })) })
        },
        beat: async () => {
          if (beatsToLeave-- <= 2) {
            if (beatsToLeave === 0) left.resolve()
            return { unknown: true, leaseAgeMs: 0 }
          }
          const answered = Promise.withResolvers<void>()
          beats.push(answered.resolve)
          beats.at(-1 - beatsBehind)?.()
          await answered.promise
          return { unknown: false, leaseAgeMs: leaseAge() }
        },
        leave: async () => {
          beatsToLeave = 2
          if (forgets) await left.promise
          return {}
        },
      })
    },
  })
  const welcome = () =>
    send(
      down('welcome', {
        ...{ $typeName: 'curfew.v1.Welcome', managerId: 'n_1', version: '1', protocol: 1 },
        ...{ confirmed: [], predecessors: [], leaseAgeMs: leaseAge() },
      }),
    )
  const start = (taskId: string) =>
    send(
      downToWire({
        type: 'start',
        assignments: [
          {
            ...{ taskId, name: 'work', queue: 'default', attempt: 1, token: `r_${taskId}`, input: 'null' },
            ...{ details: null, deadlineAt: null, attemptMs: null, totalMs: null, softStopMs: 0 },
            ...{ beatEveryMs: 1_000, graceMs: 1_000, scope: null, trace: null },
          },
        ],
      }),
    )
  const leave = () => send(down('goodbye', { $typeName: 'curfew.v1.Goodbye' }))
  const attaches = () => attached
  return { url: server.url, reports, beats, attaches, welcome, start, leave, close: () => server.close() }
}

test('work that comes after an outage is run, though the last beat was before its end', async () => {
  let leaseAgeMs = 60_000
  const manager = await startManager(() => leaseAgeMs)
  const second = Promise.withResolvers<void>()
  const work = task({
    name: 'work',
    run: async (_: null, { signal, taskId, progress }) => {
      progress(0.5)
      if (taskId === 't_2') return second.promise
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    },
  })
  const worker = await Curfew.work({ managers: manager.url, tasks: [work], logger: quiet })
  try {
    manager.welcome()
    await worker.attached()
    manager.start('t_1')
    await vi.waitUntil(() => manager.reports.includes('t_1 stopped'), { timeout: 10_000 })
    leaseAgeMs = 0
    manager.start('t_2')
    await vi.waitUntil(() => manager.reports.includes('t_2 beat'), { timeout: 3_000 })
    second.resolve()
    await vi.waitUntil(() => manager.reports.some((one) => /^t_2 (completed|stopped)/.test(one)), {
      timeout: 3_000,
    })
    expect(manager.reports.filter((one) => one.startsWith('t_2'))).toEqual(['t_2 beat', 't_2 completed'])
  } finally {
    second.resolve()
    await worker.close()
    await manager.close()
  }
})

test('what a manager that stands still has not answered goes to the next one as soon as there is one', async () => {
  const first = await startManager(() => 0, { standsStill: true })
  const second = await startManager(() => 0)
  const work = task({ name: 'work', run: async () => 'done' })
  const worker = await Curfew.work({ managers: [first.url, second.url], tasks: [work], logger: quiet })
  try {
    first.welcome()
    await worker.attached()
    // As many batches as are under way at a time.
    for (const id of ['t_1', 't_2', 't_3']) {
      first.start(id)
      await vi.waitUntil(() => first.reports.includes(`${id} completed`), { timeout: 10_000 })
    }
    first.start('t_4')
    first.leave()
    second.welcome()
    await vi.waitUntil(() => second.reports.length === 4, { timeout: 10_000 })
    expect(second.reports.toSorted()).toEqual([1, 2, 3, 4].map((n) => `t_${n} completed`))
  } finally {
    await worker.close()
    await Promise.all([first.close(), second.close()])
  }
})

test('beats that are answered late, within the orphan grace, keep the lease', async () => {
  const manager = await startManager(() => 0, { beatsBehind: 3 })
  const ends = Promise.withResolvers<void>()
  const work = task({ name: 'work', run: () => ends.promise })
  const worker = await Curfew.work({ managers: manager.url, tasks: [work], logger: quiet })
  try {
    manager.welcome()
    await worker.attached()
    manager.start('t_1')
    await vi.waitUntil(() => manager.beats.length >= 9 || manager.reports.length > 0, { timeout: 20_000 })
    ends.resolve()
    await vi.waitUntil(() => manager.reports.length > 0, { timeout: 5_000 })
    expect(manager.reports).toEqual(['t_1 completed'])
  } finally {
    ends.resolve()
    await worker.close()
    await manager.close()
  }
})

test('a worker that has said goodbye does not attach again when its last beats are answered', async () => {
  const manager = await startManager(() => 0, { forgets: true })
  const work = task({ name: 'work', run: async () => undefined })
  const worker = await Curfew.work({ managers: manager.url, tasks: [work], logger: quiet })
  try {
    manager.welcome()
    await worker.attached()
    await worker.close()
    expect(manager.attaches()).toBe(1)
  } finally {
    await manager.close()
  }
})

test('of a manager that takes connections and says nothing the log says that', async () => {
  const server = createServer(() => undefined).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const told = Promise.withResolvers<object>()
  const work = task({ name: 'work', run: async () => 'done' })
  const logger = { ...quiet, warn: (fields: object) => told.resolve(fields) }
  const worker = await Curfew.work({ managers: url, tasks: [work], logger })
  try {
    expect(await told.promise).toEqual({
      ...{ manager: url, code: 'unreachable', error: 'nothing came within 5000 ms' },
    })
  } finally {
    await worker.close()
    server.closeAllConnections()
    server.close()
  }
}, 20_000)
