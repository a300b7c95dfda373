/** `curfew resume ID`: goes on with work that was left, or was parked. */
import path from 'node:path'
import { Command } from 'commander'
import type { Client } from '../client/client.ts'
import { durationMs, formatDuration } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { mapreduceQueue } from '../core/own-work.ts'
import type { TaskStatus } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import type { TaskView } from '../curfew.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { memberRuns } from '../mapreduce/job-members.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import type { Config } from './config.ts'
import { addSettings, loadConfig } from './config.ts'
import { usageError } from './exit-code.ts'
import type { Place } from './find-engine.ts'
import { findEngine, placeOf } from './find-engine.ts'
import type { Io } from './io.ts'
import { registryOf } from './known-names.ts'
import { loadModules } from './load-modules.ts'
import { limitOf, refuseConcurrency } from './mapreduce-flags.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'
import { printJson, printLines } from './print.ts'
import { workOnRun } from './run-mapreduce.ts'
import { runToEnd } from './run-to-end.ts'
import { handleOf } from './work-handle.ts'
import { WorkedMembers } from './worked-members.ts'

const OPEN: readonly TaskStatus[] = ['pending', 'running']

interface ResumeFlags extends Flags {
  wait: boolean
  timeout?: string
  agentTimeout?: string
  retryTimeouts?: boolean
}

export function resumeCommand(io: Io): Command {
  const command = new Command('resume')
    .description('Go on with work that a process left, or that is parked, until it has ended')
    .argument('<id>', 'of the work')
    .option('--no-wait', 'only let parked work go on; whoever works on the store runs it')
    .option('--timeout <duration>', 'of the whole, from now on, instead of what is left')
    .option('--agent-timeout <duration>', 'of a map-reduce: for each item, instead of the one in the file')
    .option('--retry-timeouts', 'of a map-reduce: work on the items that timed out once more')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew resume j_01kdvq5x6w0000000000000000 --module tasks.ts
  $ curfew resume g_01kdvq5x6w0000000000000000 --manager http://127.0.0.1:4242 --no-wait

With nobody there it takes the store and runs the work here. Its clocks ran on meanwhile.
Exits as "curfew run" does.`,
    )
  return jsonOption(addSettings(command, 'run')).action(async (id: string, flags: ResumeFlags) => {
    const config = await loadConfig(io, 'run', flags)
    const place = placeOf(io, config)
    if (!flags.wait) {
      const engine = await findEngine(io, config, 'write')
      try {
        await engine.client.resume(id)
      } finally {
        await engine.close()
      }
      if (flags.json) printJson(io, { id })
      else printLines(io, [`${id} goes on.`])
      return
    }
    const json = flags.json === true
    const isMapreduce = RunFolder.exists(runsFolder(io.env), id)
    const toMs = isMapreduce ? limitOf : durationMs
    const timeoutMs = flags.timeout === undefined ? null : toMs(flags.timeout, '--timeout')
    const first = timeoutMs === null ? null : limitFromNow(io, id, timeoutMs)
    if (isMapreduce) {
      refuseConcurrency(flags, 'was set when it was started, by max_parallel')
      const folder = RunFolder.open(runsFolder(io.env), id)
      const { retryTimeouts = false } = flags
      if (folder.record.endedAt !== null) {
        folder.unlock()
        throw new CurfewError('already_ended', `${id} has ended`, {
          hint: `Its dead letters: curfew dlq list ${id}`,
        })
      }
      refuseMember(folder)
      const where = placeOfRun(config, folder, place)
      setAgentTimeout(io, folder, flags.agentTimeout)
      return workOnRun(io, { config, place: where, folder, json, retryTimeouts, ...(first && { first }) })
    }
    if (flags.agentTimeout !== undefined || flags.retryTimeouts)
      throw usageError(`--agent-timeout and --retry-timeouts: ${id} is no map-reduce that can be resumed`)
    const definitions = await loadModules(config.settings.modules, io.cwd)
    const [member] = memberRuns(runsFolder(io.env), ({ job }) => job === id)
    const where =
      member === undefined ? place : placeOfRun(config, RunFolder.look(runsFolder(io.env), member), place)
    const members = member === undefined ? null : WorkedMembers.open(io, id, config)
    await runToEnd(io, {
      ...{ config, place: where, definitions, json, isStored: true, cancelsOthers: false },
      ...(first && { first }),
      ...(members && { members }),
      begin: async ({ client, via }) => {
        const work = await handleOf(client, id)
          .view()
          .catch((error: CurfewError) => {
            if (error.code === 'not_found') members?.neverStored()
            throw error
          })
        const { parked, status } = work
        members?.started()
        if (!isEnded(status)) await refuseWithoutFolder(io, client, work, members)
        if (via === 'own' && 'isFile' in where && where.isFile)
          await refuseWithoutCode(client, work, registryOf(definitions))
        if (parked !== null) await client.resume(id)
        return id
      },
    })
  })
}

/** With a store to itself this process would wait for ever, and Ctrl-C would cancel what only lacks its module. */
async function refuseWithoutCode(client: Client, work: TaskView, known: Required<Registry>): Promise<void> {
  const { kind, id, name, status } = work
  if (!OPEN.includes(status)) return
  const isKnown = kind === 'task' ? known.tasks.has(name) : kind !== 'agent' || known.agents.has(name)
  if (!isKnown && !name.startsWith('$')) {
    throw new CurfewError(`unknown_${kind}`, `nothing here can run the ${kind} ${name} (${id})`, {
      hint: 'Name the file that exports it: --module FILE.',
      fields: { id, name },
    })
  }
  if (kind === 'task') return
  const { tasks } = await client.list({ parent: id, status: OPEN, limit: 1_000 })
  for (const below of tasks) await refuseWithoutCode(client, below, known)
}

/** What is left of a map-reduce in the store can be run by nobody. */
async function refuseWithoutFolder(
  io: Io,
  client: Client,
  { id, kind }: TaskView,
  members: WorkedMembers | null,
): Promise<void> {
  const workflows = kind === 'job' ? await client.job(id).workflows() : []
  const lost = workflows.find(
    (one) => one.kind === 'mapreduce' && !isEnded(one.status) && !members?.has(one.id),
  )
  if (lost) {
    const message = `the folder of workflow ${lost.id} of ${id}, a map-reduce, is not in ${runsFolder(io.env)}`
    throw new CurfewError('unknown_run', message, {
      hint: `On another machine or with another state folder it may be there. To end it: curfew cancel ${id} --workflow ${lost.id}`,
      fields: { id, workflow: lost.id },
    })
  }
  const { tasks } = await client.list({ parent: id, limit: 1 })
  if (tasks[0]?.queue !== mapreduceQueue(id)) return
  const folder = path.join(runsFolder(io.env), id)
  throw new CurfewError('unknown_run', `the folder of ${id} is gone, and it cannot go on: ${folder}`, {
    hint: `On another machine or with another state folder it may be there. To end it: curfew cancel ${id}`,
    fields: { id, folder },
  })
}

/** The job decides when it runs, and what follows. */
function refuseMember(folder: RunFolder): void {
  const { memberOf, jobId } = folder.record
  if (memberOf === null) return
  folder.unlock()
  const { job, workflow } = memberOf
  throw new CurfewError('in_a_job', `${jobId} is workflow ${workflow} of job ${job}`, {
    hint: `It goes on with its job: curfew resume ${job}`,
    fields: { jobId, job, workflow },
  })
}

/**
 * Its deadline may be over already, and fires as soon as somebody works on the store: this comes before. Asked again of
 * whoever has the store next, it moves nothing.
 */
function limitFromNow(io: Io, id: string, timeoutMs: number): (client: Client) => Promise<void> {
  const endsAt = io.clock.wall() + timeoutMs
  let isAsked = false
  return async (client) => {
    const { deadlineAt, status } = await handleOf(client, id).view()
    if (isEnded(status)) return
    if (deadlineAt === null) throw usageError(`--timeout: ${id} has no limit that could be moved`)
    const byMs = endsAt - deadlineAt
    // Its answer may have been lost.
    if (byMs <= 0 && isAsked) return
    if (byMs <= 0) throw usageError(`--timeout: ${id} has more time left than ${formatDuration(timeoutMs)}`)
    isAsked = true
    await handleOf(client, id).extend(Math.ceil(byMs))
  }
}

function setAgentTimeout(io: Io, folder: RunFolder, text: string | undefined): void {
  if (text === undefined) return
  const agentTimeoutMs = limitOf(text, '--agent-timeout')
  const { record } = folder
  record.overrides.push({ at: io.clock.wall(), agentTimeoutMs })
  const { map } = record.model
  // A limit that is asked for holds.
  const policy = map.policy === 'per_command' ? 'hybrid' : map.policy
  record.model = { ...record.model, map: { ...map, agentTimeoutMs, policy } }
  folder.save()
}

/** In the store it is in, wherever this process was started. */
function placeOfRun({ origins }: Config, folder: RunFolder, place: Place): Place {
  const { place: known, jobId } = folder.record
  if (known === null || JSON.stringify(known) === JSON.stringify(place)) return place
  const isNamed = origins.store.from === 'flag' || origins.managers.from === 'flag'
  if (!isNamed) return known
  folder.unlock()
  throw usageError(`${jobId} is in ${'managers' in known ? known.managers.join(', ') : known.store}`)
}
