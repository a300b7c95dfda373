// What docs/cluster.md says about roles and times is what the code has.

import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { DescService } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import * as limits from '../src/core/limits.ts'
import { ATTEMPT_LEASE_BASE_MS, LEADERSHIP_MS, RENEW_EVERY_MS } from '../src/leadership/lease-times.ts'
import { mayCall } from '../src/wire/access.ts'
import { ClusterService } from '../src/wire/gen/curfew/v1/cluster_pb.ts'
import { JobService } from '../src/wire/gen/curfew/v1/jobs_pb.ts'
import { WorkerService } from '../src/wire/gen/curfew/v1/workers_pb.ts'
import { ROLES } from '../src/wire/roles.ts'
import { sectionOf } from './shell-examples.ts'

const root = path.join(import.meta.dirname, '..')
const read = (file: string) => readFileSync(path.join(root, file), 'utf8')
const page = read('docs/cluster.md')

/** The rows of the first table that has this in its head, without the head. */
function tableOf(text: string, head: string): string[][] {
  const lines = text.split('\n')
  const start = lines.findIndex((line) => line.startsWith('|') && line.includes(head))
  const end = lines.findIndex((line, i) => i > start && !line.startsWith('|'))
  return lines.slice(start + 2, end).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
}

test('the table of roles is the one that holds', () => {
  const methods = [JobService, WorkerService, ClusterService].flatMap((service: DescService) =>
    service.methods.map(({ name }) => [name, `/${service.typeName}/${name}`] as const),
  )
  const paths = new Map([...methods, ['/metrics', '/metrics'] as const])
  const shown = tableOf(page, 'may call').flatMap(([names = '', ...marks]) =>
    [...names.matchAll(/`([^`]+)`/g)].map(([, name = '']) => [name, marks.map((mark) => mark === 'yes')]),
  )
  const held = [...paths].map(([name, at]) => [name, ROLES.map((role) => mayCall(role, at))])
  expect(Object.fromEntries(shown)).toEqual(Object.fromEntries(held))
})

test('the numbers are those of the code', () => {
  const numbers = Object.fromEntries(
    tableOf(sectionOf(page, 'The numbers'), '| | | |').map(([of, is]) => [of, is]),
  )
  const seconds = (ms: number) => `${ms / 1_000} s`
  const inSource = (file: string, name: string) => {
    const [, value = ''] = new RegExp(`const ${name} = ([\\d_]+)\\n`).exec(read(file)) ?? []
    return seconds(Number(value.replaceAll('_', '')))
  }
  expect(read('src/manager/remote-workers.ts')).toContain('const SILENT_MS = 3 * RENEW_EVERY_MS\n')
  expect(read('src/worker/remote-manager.ts')).toContain(
    '{ initialMs: 100, factor: 2, maxMs: 5_000, jitter: 1 }',
  )
  const [, withWork = ''] =
    /RECONNECT_WITH_WORK: Backoff = \{ \.\.\.RECONNECT, maxMs: ([\d_]+) \}/.exec(
      read('src/worker/remote-manager.ts'),
    ) ?? []
  const apart = seconds(Number(withWork.replaceAll('_', '')))
  expect(page).toContain(`at most ${apart} with work at hand`)
  expect(page).toContain(`at most ${apart} apart while they have work`)
  expect(numbers).toEqual({
    'beat of a worker, ping on its stream': inSource('src/worker/beats.ts', 'BEAT_EVERY_MS'),
    'a worker is `silent`': seconds(3 * RENEW_EVERY_MS),
    'stream without a sign': inSource('src/worker/remote-manager.ts', 'STREAM_SILENT_MS'),
    'orphan grace': seconds(limits.ORPHAN_GRACE_MS),
    'lease of an attempt': `${seconds(ATTEMPT_LEASE_BASE_MS)} + its grace`,
    'leadership, on PostgreSQL': seconds(LEADERSHIP_MS),
    'waiting for an answer to a report': inSource('src/worker/remote-manager.ts', 'ANSWER_WITHIN_MS'),
    reconnecting: '0.1 s to 5 s',
    'a client asks the next manager': inSource('src/client/manager-calls.ts', 'SIGN_WITHIN_MS'),
    'a client gives up': inSource('src/client/manager-calls.ts', 'ORPHANED_MS'),
    '`Wait` over HTTP': inSource('src/manager/job-service.ts', 'LONGEST_WAIT_MS'),
  })
})

test.each([
  [limits.MAX_REMOTE_WORKERS.toLocaleString('en'), 'At most 10,000 on one'],
  [limits.MAX_CONNECTIONS.toLocaleString('en'), '30,000 connections'],
  [`${limits.MAX_REQUEST_BYTES / 2 ** 20} MiB`, '16 MiB a request and a minute to send it'],
  [`${limits.MAX_HEADER_BYTES / 2 ** 10} KiB`, '16 KiB of headers'],
  [`${limits.MAX_REFUSED_TOKENS}`, 'after 20 in a minute from one address'],
  [`${limits.MAX_PAYLOAD_BYTES / 2 ** 20} MiB`, '1 MiB each at most'],
])('%s is the limit in "%s"', (limit, sentence) => {
  expect(sentence).toContain(limit)
  expect(page.replaceAll(/\s+/g, ' ')).toContain(sentence)
})
