/**
 * Which role may call what: one row for each method of each service and for each plain path. What has no row is
 * called by nobody. The types want a row for every method, and so does a test.
 */
import type { DescService } from '@bufbuild/protobuf'
import { ClusterService } from './gen/curfew/v1/cluster_pb.ts'
import { JobService } from './gen/curfew/v1/jobs_pb.ts'
import { WorkerService } from './gen/curfew/v1/workers_pb.ts'
import type { Role } from './roles.ts'
import { ROLES } from './roles.ts'

/** `open` needs no credential at all. */
export type Access = 'open' | readonly Role[]

type Rows<S extends { method: object }> = { readonly [M in keyof S['method']]: readonly Role[] }

/** Looks, and changes nothing. */
const READ: readonly Role[] = ['read-only', 'client', 'peer', 'admin']
/** Starts and stops work. */
const USE: readonly Role[] = ['client', 'peer', 'admin']
/** Runs work. */
const RUN: readonly Role[] = ['worker', 'peer', 'admin']

const JOBS: Rows<typeof JobService> = {
  submit: USE,
  schedule: USE,
  get: READ,
  list: READ,
  wait: READ,
  waitMany: READ,
  watch: READ,
  cancel: USE,
  cancelWorkflow: USE,
  extend: USE,
  signal: USE,
  resume: USE,
  explain: READ,
  listEvents: READ,
  listAttempts: READ,
  getRun: READ,
  listWorkflows: READ,
  waitWorkflow: READ,
  listDeadLetters: READ,
  getDeadLetter: READ,
  discardDeadLetters: USE,
  claimDeadLetters: USE,
}

const WORKERS: Rows<typeof WorkerService> = {
  attach: RUN,
  report: RUN,
  beat: RUN,
  readJournal: RUN,
  leave: RUN,
  listWorkers: READ,
}

const CLUSTER: Rows<typeof ClusterService> = {
  // A worker asks which versions it would speak with before it attaches.
  getStatus: ROLES,
  listMetrics: READ,
}

/** By the path of the request, as it is routed: whole, without its query, letter for letter. */
const ACCESS = new Map<string, Access>([
  ...rowsOf(JobService, JOBS),
  ...rowsOf(WorkerService, WORKERS),
  ...rowsOf(ClusterService, CLUSTER),
  // They tell only yes or no.
  ['/healthz', 'open'],
  ['/readyz', 'open'],
  ['/metrics', READ],
])

/** Undefined: nobody may. */
export function accessOf(path: string): Access | undefined {
  return ACCESS.get(path)
}

export function mayCall(role: Role, path: string): boolean {
  const access = accessOf(path)
  return access === 'open' || (access?.includes(role) ?? false)
}

function rowsOf<S extends DescService>(service: S, rows: Rows<S>): [string, readonly Role[]][] {
  return service.methods.flatMap((method): [string, readonly Role[]][] => {
    const roles = (rows as Record<string, readonly Role[] | undefined>)[method.localName]
    return roles ? [[`/${service.typeName}/${method.name}`, roles]] : []
  })
}
