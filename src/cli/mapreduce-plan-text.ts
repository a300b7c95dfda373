/** The plan of a map-reduce, and its limits alone, as people read them. */
import { formatDuration } from '../core/duration.ts'
import { Colours } from './colours.ts'
import type { Io } from './io.ts'
import type { AttemptPlan, CommandPlan, LimitPlan } from './limit-plan.ts'
import type { ItemPlan, MapreducePlan } from './mapreduce-plan.ts'
import { oneLine, padTo, printable } from './plain-text.ts'
import { outputWidth } from './print.ts'
import type { ProgramPlan } from './run-surroundings.ts'
import { tableLines } from './text-table.ts'

const POLICIES: Record<LimitPlan['policy'], string> = {
  per_agent: 'the limit of the agent holds',
  per_command: 'the limits of commands hold',
  hybrid: 'the limits of the agent and of its commands hold, the first to fire wins',
}

const ACTIONS: Record<LimitPlan['action'], string> = {
  dlq: 'it goes to the dead letters',
  graceful_terminate: 'it goes to the dead letters',
  skip: 'it is skipped',
  fail: 'the run stops',
  retry: 'it is tried again',
}

const COLUMN = 13
const TEXT_COLUMNS = 60

export function planLines(io: Io, plan: MapreducePlan): string[] {
  const colours = new Colours(io, io.stdout)
  const { folders, maxParallel, errorPolicy } = plan
  return [
    ...titleLines(plan, colours),
    entry('items', itemsText(plan.items)),
    ...plan.items.warnings.map((warning) =>
      entry('', `${colours.style('yellow', 'warning:')} ${printable(warning)}`),
    ),
    entry('parallelism', `${maxParallel} at once`),
    entry('folders', foldersText(folders)),
    ...plan.programs.map((program, i) => entry(i === 0 ? 'programs' : '', programText(program, colours))),
    entry('on failure', errorPolicyText(errorPolicy)),
    '',
    ...limitSection(io, plan, colours),
    '',
    ...worstCaseLines(plan),
    ...closingLines(plan.warnings, plan.obstacles, colours),
  ]
}

export function limitPlanLines(io: Io, plan: LimitPlan): string[] {
  const colours = new Colours(io, io.stdout)
  return [
    ...titleLines(plan, colours),
    ...limitSection(io, plan, colours),
    ...closingLines(plan.warnings, [], colours),
  ]
}

function titleLines({ name, file }: LimitPlan, colours: Colours): string[] {
  return [`map-reduce ${colours.bold(oneLine(name))} ${colours.dim(`(${oneLine(file)})`)}`, '']
}

function entry(title: string, text: string): string {
  return `${padTo(title, COLUMN)}${text}`.trimEnd()
}

function itemsText({ from, source, found, matched, chosen, first, note }: ItemPlan): string {
  const of = source === null ? 'written in the file' : `${from} ${shortened(source)}`
  const told = note === null ? '' : ` (${note})`
  if (chosen === null || found === null || matched === null) return `not known, from ${of}${told}`
  const filtered = matched < found ? `, ${matched} pass the filter` : ''
  const chosenOf = chosen < matched ? `, ${chosen} are taken` : ''
  const names = first.map(({ name }) => oneLine(name)).join(', ')
  const more = chosen > first.length ? `, … ${chosen - first.length} more` : ''
  const list = names === '' ? '' : `: ${names}${more}`
  const head = filtered === '' && chosenOf === '' ? `${chosen}` : `${chosen}, of ${found} found`
  return `${head}${filtered}${chosenOf}, from ${of}${told}${list}`
}

function shortened(text: string): string {
  const line = oneLine(text)
  return line.length <= TEXT_COLUMNS ? line : `${line.slice(0, TEXT_COLUMNS - 1)}…`
}

function foldersText(folders: MapreducePlan['folders']): string {
  if (!folders) return 'not known'
  const { kind, commit, note } = folders
  return kind === 'worktree'
    ? `a git worktree for each item, from commit ${commit!.slice(0, 12)}`
    : `a plain folder for each item: ${printable(note ?? '')}`
}

function programText({ type, program, path, isFound }: ProgramPlan, colours: Colours): string {
  const where =
    isFound === null
      ? 'looked for when it runs'
      : isFound
        ? oneLine(path!)
        : colours.style('red', 'not found on PATH')
  return `${type}: ${oneLine(program)}, ${where}`
}

function errorPolicyText({ maxFailures, failureRate, onFailure }: MapreducePlan['errorPolicy']): string {
  const bounds = [
    ...(maxFailures === null ? [] : [`${maxFailures} failed items`]),
    ...(failureRate === null ? [] : [`more than ${Number((failureRate * 100).toFixed(2))}% of them`]),
  ]
  if (bounds.length === 0) return 'the other items go on'
  const then = onFailure === 'stop' ? 'the run stops' : 'the run has failed; the other items go on'
  return `with ${bounds.join(' or ')} ${then}`
}

function limitSection(io: Io, plan: LimitPlan, colours: Colours): string[] {
  const { policy, action, agent, idleMs, graceMs, jobMs, phases, commands } = plan
  const notHeld = agent.limitMs !== null && !agent.isApplied
  return [
    entry('policy', `${policy}: ${POLICIES[policy]}`),
    entry('on timeout', `${action}: ${ACTIONS[action]}`),
    entry(
      'agent',
      notHeld ? `none (${limitText(agent.limitMs)} is not applied: ${policy})` : limitText(agent.limitMs),
    ),
    entry('idle', limitText(idleMs)),
    entry('grace', limitText(graceMs)),
    entry('job', limitText(jobMs)),
    ...(['setup', 'reduce', 'merge'] as const).flatMap((phase) =>
      phases[phase] === null ? [] : [entry(phase, limitText(phases[phase]))],
    ),
    ...attemptLines(plan),
    '',
    ...tableLines<CommandPlan>(
      commands,
      [
        { title: 'COMMAND', text: commandText },
        { title: 'TYPE', text: ({ type }) => type },
        { title: 'LIMIT', text: ({ limitMs }) => limitText(limitMs) },
        { title: 'SET BY', text: sourceText, shrinksTo: 12 },
        { title: 'TEXT', text: ({ text }) => shortened(text), shrinksTo: 10 },
      ],
      { width: outputWidth(io), colours },
    ),
  ]
}

/** Also in seconds, as they are written in the file. */
function limitText(ms: number | null): string {
  if (ms === null) return 'none'
  const text = formatDuration(ms)
  return ms < 60_000 ? text : `${text} (${ms / 1_000}s)`
}

function commandText({ phase, index, handler }: CommandPlan): string {
  return `${phase} ${index}${handler === null ? '' : ` ${handler}`}`
}

function sourceText({ source, notApplied }: CommandPlan): string {
  if (!notApplied) return source === 'none' ? '' : source
  return `not applied: ${notApplied.limitMs === null ? 'none' : formatDuration(notApplied.limitMs)} of ${notApplied.source}`
}

function attemptLines({ maxAttempts, escalation, attempts }: LimitPlan): string[] {
  if (maxAttempts === 1) return []
  const cap = escalation?.maxMs ? `, at most ${formatDuration(escalation.maxMs)}` : ''
  const how = escalation
    ? `each with ${escalation.multiplier} times the limits${cap}`
    : 'with the same limits'
  return [
    entry('attempts', `up to ${maxAttempts}, ${how}`),
    ...attempts.map((attempt) => entry('', attemptText(attempt))),
  ]
}

function attemptText({ attempt, agentMs, commandsMs }: AttemptPlan): string {
  const commands = commandsMs.flatMap((ms, i) => (ms === null ? [] : [`command ${i} ${formatDuration(ms)}`]))
  const agent = agentMs === null ? [] : [`agent ${formatDuration(agentMs)}`]
  const limits = [...agent, ...commands].join(', ')
  return `attempt ${attempt}: ${limits === '' ? 'no limit' : limits}`
}

function worstCaseLines({ worstCase, maxParallel }: MapreducePlan): string[] {
  const { items, setupMs, itemMs, mapMs, reduceMs, mergeMs, totalMs } = worstCase
  const part = (ms: number | null) => (ms === null ? 'no bound' : formatDuration(ms))
  const parts = [
    ...(setupMs === 0 ? [] : [`setup ${part(setupMs)}`]),
    items === null
      ? `an item ${part(itemMs)}`
      : `map ${part(mapMs)} (${items} items, ${maxParallel} at once, each ${part(itemMs)})`,
    ...(reduceMs === 0 ? [] : [`reduce ${part(reduceMs)}`]),
    ...(mergeMs === 0 ? [] : [`merge ${part(mergeMs)}`]),
  ]
  const total = totalMs === null && items === null && itemMs !== null ? 'not known' : part(totalMs)
  return [entry('worst case', `${total}: ${parts.join(', ')}`)]
}

function closingLines(warnings: readonly string[], obstacles: readonly string[], colours: Colours): string[] {
  return [
    ...(warnings.length + obstacles.length > 0 ? [''] : []),
    ...warnings.map((warning) => printable(warning).replace('warning:', colours.style('yellow', 'warning:'))),
    ...obstacles.map((obstacle) => `${colours.style('red', 'It would not run:')} ${printable(obstacle)}`),
  ]
}
