/**
 * One engine of the chaos run, started and killed by the driver. `load`: schedules, cancels and waits until it is
 * killed. `finish`: lets everything end, writes down every record as the public API shows it, and closes.
 */
import { appendFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import type { CurfewError, ScheduleOptions, TaskHandle, TaskView } from '../../src/curfew.ts'
import { Curfew } from '../../src/curfew.ts'
import { note, readJournal } from '../journal.ts'
import { SeededRandom } from '../random.ts'
import { until } from '../wait.ts'
import type { Plan } from './kinds.ts'
import { NARROW_QUEUE, nextPlan } from './kinds.ts'
import { inlineTasks, isolatedTasks, unknown } from './tasks.ts'

export interface ProgramOptions {
  mode: 'load' | 'finish'
  store: string
  journal: string
  /** Where the records are written at the end. */
  records: string
  seed: number
  /** With the tasks that run in processes of their own, and so with a witness. */
  isolation: boolean
  openAgain: boolean
}

const options = JSON.parse(process.argv[2] ?? '{}') as ProgramOptions
const CONCURRENCY = 20
const OPERATION_EVERY_MS = 15
const MOST_KNOWN = 200
/** Lost attempts of a process without a witness wait for their lease, three in a row at worst. */
const FINISH_WITHIN_MS = 120_000

// The driver is gone: so is this.
const die = () => process.exit(1)
process.on('disconnect', die)

const definitions = new Map([...inlineTasks, ...isolatedTasks, unknown].map((one) => [one.name, one]))
const random = new SeededRandom(options.seed)

// For the handlers in processes of their own.
process.env.FAULTS_OWNER = String(process.pid)

process.send?.('opening')
const curfew = await open()
say('opened')
process.send?.('opened')
if (options.mode === 'load') await load()
else await finish()

/** Connections that are ended at random may be those of the start: then it is started again. */
async function open(): Promise<Curfew> {
  for (let tries = 1; ; tries++) {
    try {
      return await Curfew.open({
        store: options.store,
        tasks: options.isolation ? [...inlineTasks, ...isolatedTasks] : inlineTasks,
        concurrency: CONCURRENCY,
        queues: { [NARROW_QUEUE.name]: { concurrency: NARROW_QUEUE.concurrency } },
      })
    } catch (error) {
      const passing = (error as { code?: string }).code === 'store_unavailable'
      if (!options.openAgain || !passing || tries === 20) throw error
    }
  }
}

function say(type: string, more: object = {}): void {
  note(options.journal, { type, ...more })
}

async function load(): Promise<never> {
  const known: TaskHandle[] = []
  await scheduleAgain()
  for (;;) {
    const chosen = random.next()
    if (chosen < 0.85 || known.length === 0) void schedule(nextPlan(random, random.between(0, 1e9)), known)
    else if (chosen < 0.95) void cancel(random.pick(known))
    else void scheduleAgain()
    await pause(random.between(0, 2 * OPERATION_EVERY_MS))
  }
}

async function schedule(plan: Plan, known: TaskHandle[]): Promise<void> {
  const ref = `${process.pid}-${random.next()}`
  say('schedule_sent', { ref, plan })
  const handle = await call('schedule', () => callSchedule(plan))
  if (!handle) return
  say('scheduled', { ref, plan, taskId: handle.id, existing: handle.existing })
  known.push(handle)
  if (known.length > MOST_KNOWN) known.shift()
  if (random.chance(0.3)) await waitFor(handle)
}

function callSchedule(plan: Plan): Promise<TaskHandle> {
  const { task, input, ...rest } = plan
  const definition = definitions.get(task)
  if (!definition) throw new Error(`there is no task ${task}`)
  const {
    delayMs,
    timeoutMs,
    attemptTimeoutMs,
    queueTimeoutMs,
    heartbeatTimeoutMs,
    stuckAfterMs,
    graceMs,
    ...same
  } = rest
  const scheduleOptions: ScheduleOptions = {
    ...same,
    ...(delayMs !== undefined && { delay: delayMs }),
    ...(timeoutMs !== undefined && { timeout: timeoutMs }),
    ...(attemptTimeoutMs !== undefined && { attemptTimeout: attemptTimeoutMs }),
    ...(queueTimeoutMs !== undefined && { queueTimeout: queueTimeoutMs }),
    ...(heartbeatTimeoutMs !== undefined && { heartbeatTimeout: heartbeatTimeoutMs }),
    ...(stuckAfterMs !== undefined && { stuckAfter: stuckAfterMs }),
    ...(graceMs !== undefined && { grace: graceMs }),
  }
  return curfew.schedule(definition, input, scheduleOptions)
}

/** What has a key and no answer, because somebody was killed in between; and one that was answered. */
async function scheduleAgain(): Promise<void> {
  const facts = readJournal(options.journal)
  const keyed = facts.filter(({ plan }) => (plan as Plan | undefined)?.key !== undefined)
  const answered = new Set(keyed.filter(({ type }) => type === 'scheduled').map(({ ref }) => ref))
  const open = keyed.filter(
    ({ type, ref, pid }) => type === 'schedule_sent' && pid !== process.pid && !answered.has(ref),
  )
  const again = [...open.slice(-5), ...(keyed.length ? [random.pick(keyed)] : [])]
  for (const { plan } of again) await schedule(plan as Plan, [])
}

async function cancel(handle: TaskHandle): Promise<void> {
  say('cancel_sent', { taskId: handle.id })
  const answer = await call('cancel', () => handle.cancel())
  if (answer) say('cancel_answered', { taskId: handle.id, answer })
}

async function waitFor(handle: TaskHandle): Promise<void> {
  await handle.result().then(
    (output) => say('result', { taskId: handle.id, status: 'completed', output }),
    (error: CurfewError) => {
      if (error.code.startsWith('task_')) say('result', { taskId: handle.id, status: error.code })
      else say('call_failed', { call: 'result', code: error.code, message: String(error) })
    },
  )
}

async function call<T>(what: string, run: () => Promise<T>): Promise<T | null> {
  try {
    return await run()
  } catch (error) {
    say('call_failed', { call: what, code: (error as { code?: string }).code, message: String(error) })
    return null
  }
}

/** Everything there is, as the public API shows it: what has not ended in time too, for the auditor to see. */
async function finish(): Promise<void> {
  const open = new Set<string>()
  try {
    await until('every task has ended and settled', FINISH_WITHIN_MS, async () => {
      const { tasks } = await curfew.list({ status: ['pending', 'running'], limit: 1 })
      return tasks.length === 0
    })
    for await (const { id, settled } of everyTask()) if (!settled) open.add(id)
    for (const id of open) {
      const settled = async () => (await curfew.task(id).view()).settled
      await until(`task ${id} has settled`, FINISH_WITHIN_MS, settled)
    }
  } catch (error) {
    say('not_ended', { message: String(error) })
  }
  for await (const { id } of everyTask()) {
    const handle = curfew.task(id)
    const record = {
      view: await handle.view(),
      events: await handle.events(),
      explanation: await handle.explain(),
    }
    appendFileSync(options.records, `${JSON.stringify(record)}\n`)
  }
  await curfew.close()
  say('closed')
  process.off('disconnect', die)
  process.disconnect()
}

async function* everyTask(): AsyncGenerator<TaskView> {
  for (let cursor: string | null = null; ; ) {
    const page: { tasks: TaskView[]; cursor: string | null } = await curfew.list({
      limit: 500,
      ...(cursor !== null && { cursor }),
    })
    yield* page.tasks
    if (page.cursor === null) return
    cursor = page.cursor
  }
}
