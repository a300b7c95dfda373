/**
 * One engine of the chaos run with agents, started and killed by the driver. `load`: starts agents, sends them
 * signals, cancels some and looks at them until it is killed. `finish`: lets everything end, writes down every record
 * as the public API shows it, and closes.
 */
import { appendFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import type { CurfewError, TaskView } from '../../src/curfew.ts'
import { Curfew } from '../../src/curfew.ts'
import type { ProgramOptions } from '../chaos/program.ts'
import type { Fact } from '../journal.ts'
import { note, readJournal } from '../journal.ts'
import { SeededRandom } from '../random.ts'
import { until } from '../wait.ts'
import type { AgentPlan } from './plans.ts'
import { nextPlan, signalCount } from './plans.ts'
import { scriptAgent, scriptTasks } from './script-agent.ts'

const options = JSON.parse(process.argv[2] ?? '{}') as ProgramOptions
const CONCURRENCY = 20
/** Few: some are evicted and replayed though nobody is killed. */
const RESIDENTS = 15
const OPERATION_EVERY_MS = 25
const MOST_KNOWN = 60
/** The turn of a process without a witness waits for its lease. */
const FINISH_WITHIN_MS = 120_000

interface Known {
  id: string
  plan: AgentPlan
}

// The driver is gone: so is this.
const die = () => process.exit(1)
process.on('disconnect', die)

const random = new SeededRandom(options.seed)
let sent = 0
/** Cancelled at the end. */
const helped = new Set<string>()

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
        tasks: scriptTasks,
        agents: [scriptAgent],
        concurrency: CONCURRENCY,
        residents: { count: RESIDENTS },
        witness: options.isolation,
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
  const known = knownFrom(readJournal(options.journal)).slice(-MOST_KNOWN)
  void startAgain()
  // Just after a start is when a wait may have changed.
  for (let i = 0; i < 5 && known.length > 0; i++) void look(random.pick(known))
  for (;;) {
    const chosen = random.next()
    if (chosen < 0.4 || known.length === 0) void start(`k-${random.next()}`, nextPlan(random), known)
    else if (chosen < 0.7) void signal(random.pick(known))
    else if (chosen < 0.75) void cancel(random.pick(known).id)
    else if (chosen < 0.95) void look(random.pick(known))
    else void startAgain()
    await pause(random.between(0, 2 * OPERATION_EVERY_MS))
  }
}

function knownFrom(facts: readonly Fact[]): Known[] {
  return facts
    .filter(({ type }) => type === 'started')
    .map(({ agentId, plan }) => ({ id: agentId as string, plan: plan as AgentPlan }))
}

async function start(key: string, plan: AgentPlan, known: Known[]): Promise<void> {
  say('start_sent', { key, plan })
  const { ops, end, timeoutMs } = plan
  const limits = timeoutMs === undefined ? {} : { timeout: timeoutMs }
  const handle = await call('start', () => curfew.start(scriptAgent, { ops, end }, { key, ...limits }))
  if (!handle) return
  say('started', { key, plan, agentId: handle.id, existing: handle.existing })
  known.push({ id: handle.id, plan })
  if (known.length > MOST_KNOWN) known.shift()
  const waited = signalCount(plan.ops)
  // One after the other: the order in which they are sent is the order in which they have to be taken.
  if (random.chance(0.6)) for (let i = 0; i < waited; i++) await send(handle.id)
  if (random.chance(0.3)) await waitFor(handle.id)
}

/** What has no answer, because somebody was killed in between; and one that was answered. */
async function startAgain(): Promise<void> {
  const facts = readJournal(options.journal)
  const answered = new Set(facts.filter(({ type }) => type === 'started').map(({ key }) => key))
  const asked = facts.filter(({ type }) => type === 'start_sent')
  const open = asked.filter(({ key, pid }) => pid !== process.pid && !answered.has(key))
  const again = [...open.slice(-3), ...(asked.length ? [random.pick(asked)] : [])]
  for (const { key, plan } of again) await start(key as string, plan as AgentPlan, [])
}

async function signal({ id, plan }: Known): Promise<void> {
  if (signalCount(plan.ops) === 0) return
  await send(id)
}

async function send(agentId: string): Promise<void> {
  const value = `s${process.pid}.${++sent}`
  say('signal_sent', { agentId, value })
  try {
    await curfew.agent(agentId).signal('go', value)
    say('signal_answered', { agentId, value })
  } catch (error) {
    const { code } = error as CurfewError
    if (code === 'refused') say('signal_refused', { agentId, value })
    else say('call_failed', { call: 'signal', code, message: String(error) })
  }
}

async function cancel(agentId: string): Promise<void> {
  say('cancel_sent', { agentId })
  const answer = await call('cancel', () => curfew.agent(agentId).cancel())
  if (answer) say('cancel_answered', { agentId, answer })
}

/** What it waits for, and until when. */
async function look({ id }: { id: string }): Promise<void> {
  const seen = await call('explain', () => curfew.agent(id).explain())
  if (!seen) return
  const times = seen.waits.flatMap(({ what, until: at }) => (what === 'time' && at !== null ? [at] : []))
  const [limit] = seen.limits
  say('looked', {
    agentId: id,
    steps: seen.journal?.steps,
    times,
    deadlineAt: limit?.deadlineAt ?? null,
  })
}

async function waitFor(agentId: string): Promise<void> {
  await curfew
    .agent(agentId)
    .result()
    .then(
      (output) => say('result', { agentId, status: 'completed', output }),
      (error: CurfewError) => {
        if (error.code.startsWith('task_')) say('result', { agentId, status: error.code })
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

async function finish(): Promise<void> {
  const plans = new Map(
    readJournal(options.journal).flatMap(({ type, key, plan }) =>
      type === 'start_sent' ? [[key as string, plan as AgentPlan]] : [],
    ),
  )
  try {
    await until('every agent and task has ended and settled', FINISH_WITHIN_MS, async () => {
      let open = 0
      for (const view of await unsettled()) {
        open++
        await help(view, plans.get(view.key ?? ''))
      }
      return open === 0
    })
  } catch (error) {
    say('not_ended', { message: String(error) })
  }
  for await (const view of everything()) {
    const handle = curfew.agent(view.id)
    const events = view.kind === 'agent' ? await handle.events() : []
    appendFileSync(options.records, `${JSON.stringify({ view, events })}\n`)
  }
  await curfew.close()
  say('closed')
  process.off('disconnect', die)
  process.disconnect()
}

/** What nobody would ever do: sends the signals that are missing, cancels what hangs, resumes what is parked. */
async function help(view: TaskView, plan: AgentPlan | undefined): Promise<void> {
  const { id, parked } = view
  if (parked !== null) {
    say('resumed', { agentId: id, parked })
    await call('resume', () => curfew.resume(id))
  }
  if (plan === undefined) return
  if (plan.end === 'hang' && plan.timeoutMs === undefined && !helped.has(id)) {
    helped.add(id)
    await cancel(id)
  }
  const waits = (await call('explain', () => curfew.agent(id).explain()))?.waits ?? []
  if (waits.some(({ what, name }) => what === 'signal' && name === 'go')) await send(id)
}

async function unsettled(): Promise<TaskView[]> {
  const open = ['pending', 'running', 'cancelling'] as const
  const { tasks } = await curfew.list({ status: open, limit: 500 })
  if (tasks.length > 0) return tasks
  const found: TaskView[] = []
  for await (const view of everything()) if (!view.settled) found.push(view)
  return found
}

async function* everything(): AsyncGenerator<TaskView> {
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
