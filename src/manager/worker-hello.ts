/** How a worker of another process introduces itself: everything is looked at before anybody relies on it. */
import { CurfewError } from '../core/errors.ts'
import { MAX_ANNOUNCED, MAX_CONCURRENCY, MAX_LABELS, MAX_NAME_LENGTH } from '../core/limits.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { AttachRequest } from '../wire/gen/curfew/v1/workers_pb.ts'
import { MachineSchema } from '../wire/gen/curfew/v1/workers_pb.ts'
import { toPlain } from '../wire/plain.ts'
import type { Held } from '../wire/worker-port.ts'
import type { Machine, RemoteHello } from './remote-workers.ts'

const KINDS = ['task', 'agent', 'workflow']

export function readHello(request: AttachRequest): RemoteHello {
  const { workerId, session, version, concurrency, turns, labels, definitions, attempts, turnsHeld } = request
  checkName('worker_id', workerId)
  check('session must be above 0', session > 0)
  for (const [name, count] of Object.entries({ concurrency, turns }))
    check(`${name} must be from 0 to ${MAX_CONCURRENCY}`, count >= 0 && count <= MAX_CONCURRENCY)
  check('its version is too long', version.length <= MAX_NAME_LENGTH)
  checkLabels(labels)
  check(`at most ${MAX_ANNOUNCED} definitions can be announced`, definitions.length <= MAX_ANNOUNCED)
  for (const { kind, name } of definitions) {
    check(`a definition is one of ${KINDS.join(', ')}`, KINDS.includes(kind))
    checkName(`name of a ${kind}`, name)
  }
  check(`at most ${MAX_ANNOUNCED} queues can be named`, request.queues.length <= MAX_ANNOUNCED)
  for (const queue of request.queues) checkName('queue', queue)
  // What has ended there and was not reported yet counts too.
  const most = 2 * MAX_CONCURRENCY
  check(`at most ${most} attempts can be shown`, attempts.length <= most && turnsHeld.length <= most)
  const named = (kind: string) => definitions.filter((one) => one.kind === kind).map(({ name }) => name)
  return {
    ...{ workerId, session, version, concurrency, turns, labels },
    machine: readMachine(request.machine),
    names: named('task'),
    agents: named('agent'),
    queues: request.allQueues ? null : request.queues,
    definitions: definitions.map(({ kind, name, body }) => ({ kind, name, body: { ...body } })),
    ...{ attempts: attempts.map(readHeld), turnsHeld: turnsHeld.map(readHeld) },
  }
}

function checkLabels(labels: Record<string, string>): void {
  const entries = Object.entries(labels)
  check(`at most ${MAX_LABELS} labels can be set`, entries.length <= MAX_LABELS)
  for (const text of entries.flat())
    check(`a label has at most ${MAX_NAME_LENGTH} characters`, text.length <= MAX_NAME_LENGTH)
}

function readMachine(machine: object | undefined): Machine {
  check('machine is missing', machine !== undefined)
  const read = toPlain<Machine>(MachineSchema, machine as object)
  for (const text of [read.host, read.bootId, read.pidSpace, read.pidStarted])
    check('machine: a text is too long', text.length <= MAX_NAME_LENGTH)
  return read
}

function readHeld({ id, token }: Held): Held {
  return { id: checkName('id of an attempt', id), token: checkName('token of an attempt', token) }
}

function check(what: string, ok: boolean): void {
  if (!ok) throw new CurfewError('invalid_request', `attach: ${what}`)
}
