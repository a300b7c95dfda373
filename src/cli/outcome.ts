/** How a piece of work ended: its output on stdout, why it did not complete on stderr, and what to exit with. */
import type { Client } from '../client/client.ts'
import { CurfewError } from '../core/errors.ts'
import type { JobHandle, TaskView } from '../curfew.ts'
import { Colours } from './colours.ts'
import { EXIT, exitCodeOf } from './exit-code.ts'
import type { Io } from './io.ts'
import type { MapreduceSummary } from './mapreduce-snapshot.ts'
import { hasNoLetters } from './mapreduce-summary.ts'
import { oneLine } from './plain-text.ts'
import { printJson, roughDuration } from './print.ts'
import { printError } from './print-error.ts'
import { handleOf } from './work-handle.ts'

/** Of work that has settled. */
export async function printOutcome(
  io: Io,
  client: Client,
  id: string,
  { json, mapreduces }: { json: boolean; mapreduces?: Record<string, MapreduceSummary> },
): Promise<void> {
  const handle = handleOf(client, id)
  const view = await handle.view()
  const { output, error } = await resultOf(handle)
  io.stderr.write(`${summaryText(io, view)}\n`)
  if (json) {
    const workflows = view.kind === 'job' ? await (handle as JobHandle).workflows() : null
    printJson(io, { ...view, output, ...(workflows && { workflows }), ...(mapreduces && { mapreduces }) })
  } else if (error) printError(io, error, { json: false })
  else io.stdout.write(`${JSON.stringify(output, null, 2)}\n`)
  io.exitCode = exitCodeOf(view.status)
  const isClean = Object.values(mapreduces ?? {}).every(hasNoLetters)
  if (!isClean && io.exitCode === EXIT.completed) io.exitCode = EXIT.failed
}

async function resultOf(handle: {
  result(): Promise<unknown>
}): Promise<{ output: unknown; error: CurfewError | null }> {
  try {
    return { output: (await handle.result()) ?? null, error: null }
  } catch (error) {
    if (error instanceof CurfewError && ENDS.includes(error.code)) return { output: null, error }
    throw error
  }
}

const ENDS = ['task_failed', 'task_timed_out', 'task_cancelled']

function summaryText(io: Io, { id, kind, name, status, createdAt, startedAt, endedAt }: TaskView): string {
  const colours = new Colours(io, io.stderr)
  const took = endedAt === null ? '' : ` after ${roughDuration(endedAt - (startedAt ?? createdAt))}`
  return `${kind} ${oneLine(name)} ${colours.status(status)}${took} ${colours.dim(`(${id})`)}`
}
