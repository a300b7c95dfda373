/** What comes before and after the items: setup, the list of items, reduce and merge. */
import type { Stats } from 'node:fs'
import { readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'
import { HandlerError } from '../core/failure.ts'
import { MAX_ITEMS_BYTES } from '../core/limits.ts'
import { overruledLimit } from '../core/note.ts'
import { parseItems, selectItems } from '../definitions/item-selection.ts'
import type { Phase } from '../definitions/mapreduce-model.ts'
import { isToleranceUsedUp } from '../definitions/mapreduce-model.ts'
import { compileShell, renderArgument, shellVariables } from '../definitions/step-template.ts'
import { SecretMask } from '../worker/secret-mask.ts'
import { letterOf } from './item-letter.ts'
import { stopText } from './item-work.ts'
import { sendLetter } from './letter-sending.ts'
import type { ItemCounts } from './live-run.ts'
import type { Attempt, MapreduceRun } from './mapreduce-run.ts'
import { overruledAttempt, overruledEvents } from './overruled-item.ts'
import type { ItemAttempt, ItemResult } from './run-folder.ts'
import type { Budget, StepsEnd } from './steps.ts'
import { Steps } from './steps.ts'

/** The ids of the items, in their order. Those of a run that goes on are what they were. */
export async function findItems(run: MapreduceRun, attempt: Attempt): Promise<{ ids: string[] }> {
  const { folder, live, clock } = run
  live.phaseBegins('map', clock.wall())
  const known = folder.items()
  if (known) return { ids: [...known.ids()] }
  const { items, warnings } = await selected(run, attempt)
  for (const warning of warnings) run.logger.warn({ job: run.jobId }, warning)
  folder.setItems(items)
  live.setTotal(items.length)
  return { ids: items.map(({ id }) => id) }
}

async function selected(run: MapreduceRun, attempt: Attempt): Promise<ReturnType<typeof selectItems>> {
  try {
    return selectItems(run.model.map, await readInput(run, attempt))
  } catch (error) {
    if (error instanceof HandlerError || !(error instanceof CurfewError)) throw error
    throw masked(run, error.code, error.message)
  }
}

/** The name of the file may hold values. */
function masked(run: MapreduceRun, code: string, message: string): HandlerError {
  return failed(code, new SecretMask(run.secrets).text(message))
}

async function readInput(run: MapreduceRun, attempt: Attempt): Promise<unknown> {
  const { map } = run.model
  const { cwd } = run.folder.record
  const { values, env } = run.surroundings(attempt.context)
  if (map.input.kind === 'items') return map.input.items
  if (map.input.kind === 'file') {
    const file = path.resolve(cwd, renderArgument(map.input.file, values))
    try {
      const found = statSync(file)
      const { size } = found
      if (isStream(found, file))
        return parseItems(await outputOf(run, attempt, catOf(file, env)), 'file', file)
      if (size > MAX_ITEMS_BYTES)
        throw masked(run, 'too_big', `${file} has ${size} bytes; at most ${MAX_ITEMS_BYTES} are read`)
      return parseItems(readFileSync(file), 'file', file)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error
      const code = (error as NodeJS.ErrnoException).code
      if (code === 'ENOENT' || code === 'EISDIR' || code === 'EACCES')
        throw masked(run, 'input_not_found', `map.input: the file ${file} cannot be read (${code})`)
      throw error
    }
  }
  const { command, timeoutMs } = map.input
  const compiled = compileShell(command, Object.keys(env))
  const output = await outputOf(run, attempt, {
    argv: ['/bin/sh', '-c', compiled.script],
    env: { ...env, ...shellVariables(compiled, values) },
    ...{ limitMs: timeoutMs, who: 'the command' },
  })
  return parseItems(output, 'command', 'the output of map.input')
}

interface Listing {
  argv: string[]
  env: NodeJS.ProcessEnv
  limitMs: number | null
  /** For people. */
  who: string
}

async function outputOf(
  run: MapreduceRun,
  { commands, context }: Attempt,
  { argv, env, limitMs, who }: Listing,
): Promise<Buffer> {
  const { graceMs } = run.model.map
  const chunks: Buffer[] = []
  let bytes = 0
  const end = await commands.run(
    {
      ...{ argv, env, cwd: run.folder.record.cwd, limitMs, idleMs: null, graceMs, secrets: NO_SECRETS },
      ...{ outputBytes: 16_384, sweep: 'command' },
    },
    {
      onOutput: (stream, chunk) => {
        bytes += stream === 'stdout' ? chunk.length : 0
        if (stream === 'stdout' && bytes <= MAX_ITEMS_BYTES) chunks.push(chunk)
      },
    },
  )
  if (context.signal.aborted) throw context.signal.reason
  if (end.type === 'not_started') throw failed('input_failed', `map.input: ${end.message}`)
  if (end.timedOut) throw failed('input_timed_out', `map.input: ${who} timed out after ${limitMs} ms`)
  if (end.exitCode !== 0) {
    const last = end.stderr.trimEnd().split('\n').at(-1)
    const told = last ? `: ${last}` : ''
    // Its items are taken as they are; what it says of itself is not.
    throw masked(run, 'input_failed', `map.input: ${who} ended with exit code ${end.exitCode}${told}`)
  }
  if (bytes > MAX_ITEMS_BYTES)
    throw masked(run, 'too_big', `map.input: ${who} printed more than ${MAX_ITEMS_BYTES} bytes`)
  return Buffer.concat(chunks)
}

const OWN_DESCRIPTOR = /^\/(?:dev|proc\/self)\/fd\/(\d+)$/

/** A pipe or a device: it may have no end, and whoever reads it here has time for nothing else until then. */
function isStream(found: Stats, file: string): boolean {
  if (found.isFile() || found.isDirectory()) return false
  return process.platform === 'linux' || descriptorOf(file) === null
}

/** Read by a process that is stopped with everything else. To it, the descriptors of this one have other names. */
function catOf(file: string, env: NodeJS.ProcessEnv): Listing {
  const descriptor = descriptorOf(file)
  const name = descriptor === null ? file : `/proc/${process.pid}/fd/${descriptor}`
  return { argv: ['/bin/sh', '-c', 'exec cat "$0"', name], env, limitMs: null, who: `cat ${file}` }
}

function descriptorOf(file: string): string | null {
  return file === '/dev/stdin' ? '0' : (OWN_DESCRIPTOR.exec(file)?.[1] ?? null)
}

/** Items are data of the run: a secret in them is one that somebody put there. */
const NO_SECRETS: readonly string[] = []

/** What the items came to; those that are to be worked on once more. */
export async function tally(
  run: MapreduceRun,
  attempt: Attempt,
): Promise<{ ids: string[]; counts: ItemCounts }> {
  const { live, clock } = run
  const ids = run.takeTimedOut()
  if (ids.length > 0) return { ids, counts: live.counts() }
  const stop = await giveUpLost(run, attempt)
  live.phaseEnds('map', 'done', clock.wall())
  if (stop !== null) throw failed('stopped', stop)
  const counts = live.counts()
  if (isToleranceUsedUp(run.model.errorPolicy, live.bad, counts.total)) {
    const message = `${live.bad} of ${counts.total} items failed, which error_policy does not tolerate`
    throw failed('too_many_failures', message)
  }
  return { ids, counts }
}

/** The last of them says what came of the run. */
export async function workOnPhase(
  run: MapreduceRun,
  phase: Exclude<Phase, 'map'>,
  attempt: Attempt,
): Promise<{ counts: ItemCounts }> {
  const { live, clock } = run
  live.phaseBegins(phase, clock.wall())
  const overruled = overruledLimit(attempt.context.previousDetails)
  if (overruled) {
    const { timeout } = overruledAttempt(overruled, null)
    const events = run.model.map.monitoring ? overruledEvents(null, phase, overruled, timeout!) : []
    await attempt.commands.note({ events, letters: [] })
    live.phaseEnds(phase, 'failed', clock.wall())
    throw failed('phase_timed_out', `${phase}: ${timeout!.message}`)
  }
  const end = await runSteps(run, phase, attempt)
  if (end.type === 'stopped' || attempt.context.signal.aborted) throw attempt.context.signal.reason
  await attempt.commands.endLeft()
  live.phaseEnds(phase, end.type === 'completed' ? 'done' : 'failed', clock.wall())
  if (end.type === 'completed') return { counts: live.counts() }
  const { message, stdout, stderr } = end.type === 'failed' ? end.failure : end.timeout
  const code = end.type === 'failed' ? end.failure.code : 'phase_timed_out'
  throw failed(code, `${phase}: ${message}`, { stdout: stdout.slice(-2_048), stderr: stderr.slice(-2_048) })
}

async function runSteps(
  run: MapreduceRun,
  phase: Exclude<Phase, 'map'>,
  { context, commands }: Attempt,
): Promise<StepsEnd> {
  const { model, folder, secrets, live, chance } = run
  const { timeoutMs, steps } = model[phase]
  const { env, values } = run.surroundings(context)
  if (phase !== 'setup') values.map = mapValues(run)
  const budget: Budget | null =
    timeoutMs === null ? null : { type: 'phase', limitMs: timeoutMs, source: `${phase}.timeout` }
  const sequence = new Steps({
    ...{
      model,
      phase,
      item: null,
      who: `Phase ${phase}`,
      attempt: 1,
      cwd: folder.record.cwd,
      env,
      secrets,
      values,
    },
    ...{
      budget,
      commands,
      signal: context.signal,
      head: run.headOfCheckout(),
      chance,
      monitoring: model.map.monitoring,
    },
    printed: (output) => run.print(output),
    running: (step) => live.phaseStep(phase, step, steps.length),
  })
  const end = await sequence.run(steps)
  folder.setCaptures({ ...folder.captures(), ...sequence.captures })
  return end
}

/** What `reduce` and `merge` know of the items; the results are a file. */
function mapValues(run: MapreduceRun): Record<string, string> {
  const { successful, failed: bad, timedOut, skipped, total } = run.live.counts()
  function* results() {
    for (const { id, name, item } of run.folder.items()?.values() ?? []) {
      const result = run.folder.result(id)
      const last = result?.attempts.at(-1)
      const message = last?.timeout?.message ?? last?.failure?.message ?? null
      const { status = 'failed', tookMs = 0, captures = {} } = result ?? {}
      yield { item_id: id, name, item, status, took_ms: tookMs, message, captures }
    }
  }
  return {
    results: run.folder.listFile('results', results()),
    ...{ successful: String(successful), failed: String(bad + timedOut), timed_out: String(timedOut) },
    ...{ skipped: String(skipped), total: String(total) },
  }
}

/** Items whose last attempt got no further: it could not be killed, or their workers died again and again. */
async function giveUpLost(run: MapreduceRun, { commands }: Attempt): Promise<string | null> {
  let stop: string | null = null
  for (const item of run.folder.items()?.values() ?? []) {
    if (run.live.status(item.id) !== null) continue
    const earlier = run.folder.result(item.id)?.attempts ?? []
    const last = givenUp(run, earlier.length + 1, await run.takeStopped(item.id))
    const message = last.timeout?.message ?? last.failure?.message ?? null
    const attempts = [...earlier, last]
    const tookMs = attempts.reduce((sum, one) => sum + one.tookMs, 0)
    const { status } = last
    const result: ItemResult = { id: item.id, name: item.name, status, tookMs, attempts, captures: {} }
    run.folder.setResult(result)
    run.live.itemEnds(result, message)
    const letter = letterOf(run, item, result, message)
    if (letter) await sendLetter(run, commands, { result, letter, events: [] })
    if (status === 'timed_out' && run.model.map.action === 'fail') stop ??= stopText(item, message)
  }
  return stop
}

function givenUp(run: MapreduceRun, attempt: number, stopped: ItemAttempt | null): ItemAttempt {
  if (stopped?.timeout)
    return { ...stopped, attempt, status: run.model.map.action === 'skip' ? 'skipped' : 'timed_out' }
  const message = 'its attempts ended without a word: they were stopped by the store, or their process died'
  const nothing = { startedAt: run.clock.wall(), tookMs: 0, steps: [], kept: null }
  const failure = { code: 'lost', message }
  return { ...nothing, ...stopped, attempt, status: 'failed', timeout: null, failure }
}

/** The run tells it with the name of a task of Curfew's own in front; in the details it stands as people know it. */
function failed(code: string, message: string, details: Record<string, string> = {}): HandlerError {
  return new HandlerError(message, { code, retryable: false, details: { ...details, message } })
}
