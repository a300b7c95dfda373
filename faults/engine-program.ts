/** A process with one engine that does what a test asks of it. */
import type { CurfewError, OpenOptions, ScheduleOptions } from '../src/curfew.ts'
import { Curfew } from '../src/curfew.ts'
import type { AgentInput } from './engine-agents.ts'
import { engineAgents } from './engine-agents.ts'
import type { Input } from './engine-tasks.ts'
import { engineTasks } from './engine-tasks.ts'
import { monotonicMs } from './journal.ts'

export interface EngineOptions extends Pick<OpenOptions, 'store' | 'concurrency' | 'queues' | 'witness'> {
  /** The names of the tasks it runs. */
  tasks: readonly string[]
  /** The names of the agents it runs. */
  agents?: readonly string[]
}

let curfew: Curfew | null = null
// For the handlers in processes of their own.
process.env.FAULTS_OWNER = String(process.pid)

const methods = {
  open: async ({ tasks, agents = [], ...options }: EngineOptions) => {
    const chosen = engineTasks.filter(({ name }) => tasks.includes(name))
    const chosenAgents = engineAgents.filter(({ name }) => agents.includes(name))
    curfew = await Curfew.open({ ...options, tasks: chosen, agents: chosenAgents })
    return process.pid
  },
  schedule: async (name: string, input: Input, options: ScheduleOptions = {}) =>
    (await engine().schedule(named(name), input, options)).id,
  scheduleMany: async (name: string, inputs: Input[], options: ScheduleOptions = {}) =>
    (await engine().scheduleMany(named(name), inputs, options)).map(({ id }) => id),
  start: async (name: string, input: AgentInput) => {
    const found = engineAgents.find((one) => one.name === name)
    if (!found) throw new Error(`there is no agent ${name}`)
    return (await engine().start(found, input)).id
  },
  view: (id: string) => engine().task(id).view(),
  events: (id: string) => engine().task(id).events(),
  explain: (id: string) => engine().task(id).explain(),
  cancel: (id: string) => engine().task(id).cancel(),
  result: (id: string, timeoutMs: number) => engine().task(id).result({ timeout: timeoutMs }),
  count: async (status: 'pending' | 'running' | 'completed') =>
    (await engine().list({ status, limit: 1_000 })).tasks.length,
  list: async () => (await engine().list({ limit: 1_000 })).tasks,
  close: () => engine().close(),
  ping: async () => 'pong',
}

export type Methods = typeof methods
export type Request = { id: number; method: keyof Methods; args: unknown[] }
export type Reply = { id: number; tookMs: number } & (
  | { value: unknown }
  | { error: { code: string; message: string } }
)

process.on('disconnect', () => process.exit(1))
process.on('message', async ({ id, method, args }: Request) => {
  const askedAt = monotonicMs()
  const run = methods[method] as (...given: unknown[]) => Promise<unknown>
  const outcome = await run(...args).then(
    (value) => ({ value }),
    (error: CurfewError) => ({ error: { code: String(error.code), message: error.message } }),
  )
  process.send?.({ id, tookMs: monotonicMs() - askedAt, ...outcome } satisfies Reply)
})

function engine(): Curfew {
  if (!curfew) throw new Error('no engine is open')
  return curfew
}

function named(name: string) {
  const found = engineTasks.find((one) => one.name === name)
  if (!found) throw new Error(`there is no task ${name}`)
  return found
}
