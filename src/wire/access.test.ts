import { readdirSync } from 'node:fs'
import type { DescMethod, DescService } from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt'
import { expect, test } from 'vitest'
import { accessOf, mayCall } from './access.ts'
import { ROLES } from './roles.ts'

/** Read-only, client, worker, peer, admin: who may call it. */
const MATRIX: Record<string, string> = {
  '/curfew.v1.JobService/Submit': '-c-pa',
  '/curfew.v1.JobService/Schedule': '-c-pa',
  '/curfew.v1.JobService/Get': 'rc-pa',
  '/curfew.v1.JobService/List': 'rc-pa',
  '/curfew.v1.JobService/Wait': 'rc-pa',
  '/curfew.v1.JobService/WaitMany': 'rc-pa',
  '/curfew.v1.JobService/Watch': 'rc-pa',
  '/curfew.v1.JobService/Cancel': '-c-pa',
  '/curfew.v1.JobService/CancelWorkflow': '-c-pa',
  '/curfew.v1.JobService/Extend': '-c-pa',
  '/curfew.v1.JobService/Signal': '-c-pa',
  '/curfew.v1.JobService/Resume': '-c-pa',
  '/curfew.v1.JobService/Explain': 'rc-pa',
  '/curfew.v1.JobService/ListEvents': 'rc-pa',
  '/curfew.v1.JobService/ListAttempts': 'rc-pa',
  '/curfew.v1.JobService/GetRun': 'rc-pa',
  '/curfew.v1.JobService/ListWorkflows': 'rc-pa',
  '/curfew.v1.JobService/WaitWorkflow': 'rc-pa',
  '/curfew.v1.JobService/ListDeadLetters': 'rc-pa',
  '/curfew.v1.JobService/GetDeadLetter': 'rc-pa',
  '/curfew.v1.JobService/DiscardDeadLetters': '-c-pa',
  '/curfew.v1.JobService/ClaimDeadLetters': '-c-pa',
  '/curfew.v1.WorkerService/Attach': '--wpa',
  '/curfew.v1.WorkerService/Report': '--wpa',
  '/curfew.v1.WorkerService/Beat': '--wpa',
  '/curfew.v1.WorkerService/ReadJournal': '--wpa',
  '/curfew.v1.WorkerService/Leave': '--wpa',
  '/curfew.v1.WorkerService/ListWorkers': 'rc-pa',
  '/curfew.v1.ClusterService/GetStatus': 'rcwpa',
  '/curfew.v1.ClusterService/ListMetrics': 'rc-pa',
  '/healthz': 'rcwpa',
  '/readyz': 'rcwpa',
  '/metrics': 'rc-pa',
}

const methods = await readMethods(new URL('gen/curfew/v1/', import.meta.url))
const paths = methods.map(pathOf)

test('every method of every service has a row, and so has every plain path', () => {
  expect(paths.length).toBeGreaterThan(20)
  expect([...paths, '/healthz', '/readyz', '/metrics'].toSorted()).toEqual(Object.keys(MATRIX).toSorted())
  expect(paths.filter((path) => accessOf(path) === undefined)).toEqual([])
})

test.each(
  Object.entries(MATRIX).flatMap(([path, letters]) => ROLES.map((role) => [role, path, letters] as const)),
)('%s calls %s (%s)', (role, path, letters) => {
  expect(mayCall(role, path)).toBe(letters[ROLES.indexOf(role)] !== '-')
})

test('a method that is said to change nothing is open to those who only read, unless it is for workers', () => {
  const reading = methods.filter(
    (method) =>
      method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS && method.name !== 'ReadJournal',
  )
  expect(reading.length).toBeGreaterThan(5)
  for (const method of reading) {
    expect(mayCall('read-only', pathOf(method)), method.name).toBe(true)
  }
})

test('only the two paths that tell yes or no need nothing', () => {
  expect(Object.keys(MATRIX).filter((path) => accessOf(path) === 'open')).toEqual(['/healthz', '/readyz'])
})

test.each([
  '',
  '/',
  '/curfew.v1.JobService',
  '/curfew.v1.JobService/',
  '/curfew.v1.JobService/Drop',
  '/curfew.v1.JobService/submit',
  '/curfew.v1.JobService/Submit/',
  '//curfew.v1.JobService/Submit',
  '/x/../curfew.v1.JobService/Submit',
  '/curfew.v1.JobService%2FSubmit',
  'curfew.v1.JobService/Submit',
  'http://localhost/curfew.v1.JobService/Submit',
  '/curfew.v1.JobService/constructor',
  '/__proto__',
  'constructor',
  '/healthz/',
  '/Metrics',
  '*',
])('what has no row is called by nobody: %j', (path) => {
  expect(accessOf(path)).toBeUndefined()
  expect(ROLES.filter((role) => mayCall(role, path))).toEqual([])
})

/** Of all files there are: a service in a new one is found as well. */
async function readMethods(folder: URL): Promise<DescMethod[]> {
  const files = readdirSync(folder).filter((file) => file.endsWith('_pb.ts'))
  const modules: Record<string, unknown>[] = await Promise.all(
    files.map((file) => import(new URL(file, folder).href)),
  )
  return modules
    .flatMap((module) => Object.values(module))
    .filter((value): value is DescService => (value as { kind?: string }).kind === 'service')
    .flatMap((service) => service.methods)
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`
}
