import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import tellManagers from './worker-obituary.ts'

/** A manager that answers with this status, and what it was told. */
async function manager(status: number) {
  const told: unknown[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    told.push([request.url, request.headers.authorization, JSON.parse(body)])
    response.writeHead(status, { 'content-type': 'application/json' }).end('{}')
  }).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const href = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  return { told, at: { href, socketPath: undefined } }
}

const nobody = { href: 'http://127.0.0.1:9/', socketPath: undefined }
const who = { workerId: 'n_dead', token: 'secret', tls: undefined }

test('every manager is told that the worker is gone, and one that hears it is enough', async () => {
  const { told, at } = await manager(200)
  await tellManagers({ ...who, managers: [nobody, at] }, { left: [] })
  const message = { workerId: 'n_dead', receipt: 'killed' }
  expect(told).toEqual([['/curfew.v1.WorkerService/Leave', 'Bearer secret', message]])
})

test('it is to be told again where nobody heard it', async () => {
  const { at } = await manager(503)
  await expect(tellManagers({ ...who, managers: [at] }, { left: [] })).rejects.toThrow('status 503')
  await expect(tellManagers({ ...who, managers: [nobody, at] }, { left: [] })).rejects.toThrow()
})

test('nobody is told while something of it may run', async () => {
  const { told, at } = await manager(200)
  await tellManagers({ ...who, managers: [at] }, { left: [{ pid: 1 }] })
  expect(told).toEqual([])
})
