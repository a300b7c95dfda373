/**
 * The marks in the environment by which a process is known as ours, however far it ran from its group.
 * Both are lists: a worker that itself runs inside a task adds its marks to those it was born with, so that whoever
 * ends the outer attempt finds all of it.
 */
import { MARKS } from '../core/own-work.ts'

const { node: NODE, attempt: ATTEMPT, taskProcess: TASK_PROCESS } = MARKS

/** Everything of one worker process, or of one of its attempts. */
export type Marker = { nodeId: string } | { token: string }

export interface Marks {
  nodes: readonly string[]
  attempts: readonly string[]
}

const NO_MARKS: Marks = { nodes: [], attempts: [] }

export function markedEnvironment(env: NodeJS.ProcessEnv, nodeId: string, token: string): NodeJS.ProcessEnv {
  return { ...env, [NODE]: added(env[NODE], nodeId), [ATTEMPT]: added(env[ATTEMPT], token) }
}

/** What a command is given: its own variables, and of ours only those it is found by, whatever it says they are. */
export function commandEnvironment(
  { [TASK_PROCESS]: _, ...env }: NodeJS.ProcessEnv,
  nodeId: string,
  token: string,
): NodeJS.ProcessEnv {
  const born = { [NODE]: process.env[NODE], [ATTEMPT]: process.env[ATTEMPT] }
  return markedEnvironment({ ...env, ...born }, nodeId, token)
}

function added(list: string | undefined, item: string): string {
  return list ? `${list},${item}` : item
}

/** The marks in the text of /proc/PID/environ. */
export function marksOf(environ: string): Marks {
  if (!environ.includes(`${ATTEMPT}=`)) return NO_MARKS
  let nodes: string[] = []
  let attempts: string[] = []
  for (const variable of environ.split('\0')) {
    if (variable.startsWith(`${NODE}=`)) nodes = variable.slice(NODE.length + 1).split(',')
    else if (variable.startsWith(`${ATTEMPT}=`)) attempts = variable.slice(ATTEMPT.length + 1).split(',')
  }
  return { nodes, attempts }
}

/** A token has below it, after a slash, those of its commands. */
export function hasMark({ nodes, attempts }: Marks, marker: Marker): boolean {
  if ('nodeId' in marker) return nodes.includes(marker.nodeId)
  const { token } = marker
  return attempts.some((mark) => mark === token || mark.startsWith(`${token}/`))
}

/** A task's process says so with its own pid, so that a program which its handler starts is not taken for it. */
export function markTaskProcess(): void {
  process.env[TASK_PROCESS] = String(process.pid)
}

export function isTaskProcess(): boolean {
  return process.env[TASK_PROCESS] === String(process.pid)
}
