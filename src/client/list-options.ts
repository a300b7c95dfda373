/** What a list asks for, checked before anybody is asked: the same here as over the wire. */

import { CurfewError } from '../core/errors.ts'
import { checkKnown } from '../core/known-options.ts'
import { MAX_PAGE } from '../core/limits.ts'
import type { WorkKind } from '../core/own-work.ts'
import { WORK_KINDS } from '../core/own-work.ts'
import type { TaskStatus, TimeoutKind } from '../core/states.ts'
import { TASK_STATUSES, TASK_TIMEOUT_KINDS } from '../core/states.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { ListRequest } from '../wire/task-service.ts'

export interface ListOptions {
  status?: TaskStatus | readonly TaskStatus[]
  name?: string
  queue?: string
  timeoutKind?: TimeoutKind
  kind?: WorkKind
  /** What this agent, workflow or job scheduled. */
  parent?: string
  /** Only what is parked, or only what is not. */
  parked?: boolean
  cursor?: string
  limit?: number
}

const OPTIONS = ['status', 'name', 'queue', 'timeoutKind', 'kind', 'parent', 'parked', 'cursor', 'limit']

export function listRequest(options: ListOptions): ListRequest {
  checkKnown('list', options, OPTIONS)
  const { timeoutKind, kind, parked, limit = 100 } = options
  if (parked !== undefined && typeof parked !== 'boolean')
    throw invalid(`parked must be true or false, got ${parked}`)
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE)
    throw invalid(`limit must be between 1 and ${MAX_PAGE}, got ${limit}`)
  return {
    statuses: statusesOf(options.status),
    ...{ name: nameOf('name', options.name), queue: nameOf('queue', options.queue) },
    ...{ parentId: nameOf('parent', options.parent), cursor: nameOf('cursor', options.cursor) },
    timeoutKind: oneOf('timeoutKind', timeoutKind, TASK_TIMEOUT_KINDS),
    kind: oneOf('kind', kind, WORK_KINDS),
    ...{ parked: parked ?? null, limit },
  }
}

function statusesOf(status: ListOptions['status']): TaskStatus[] | null {
  if (status === undefined) return null
  const statuses = Array.isArray(status) ? status : [status]
  // Over the wire a list without any is one that was not given.
  if (statuses.length === 0) throw invalid('status: the list is empty')
  for (const one of statuses) oneOf('status', one, TASK_STATUSES)
  return [...statuses]
}

/** `cursor: null`, as the last page has it, asks for the first one. */
function nameOf(key: string, value: string | null | undefined): string | null {
  return value === undefined || value === null ? null : checkName(`list: ${key}`, value)
}

function oneOf<T extends string>(key: string, value: T | undefined, words: readonly T[]): T | null {
  if (value === undefined || words.includes(value)) return value ?? null
  throw invalid(`${key} '${value}' is none of ${words.join(', ')}`)
}

function invalid(message: string): CurfewError {
  return new CurfewError('invalid_option', `list: ${message}`)
}
