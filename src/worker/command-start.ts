/** Starting a command: its process, or why there is none. */
import type { ChildProcessByStdio } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { startTimeOf } from './process-table.ts'
import type { TreeRoot } from './process-tree.ts'

export type CommandProcess = ChildProcessByStdio<null, Readable, Readable> & { pid: number }

export type NotStartedCode =
  | 'no_program'
  | 'program_not_found'
  | 'folder_not_found'
  | 'not_allowed'
  | 'too_large'
  | 'invalid_argument'
  | 'no_resources'
  | 'stopped'
  | 'unknown'

export interface CommandNotStarted {
  type: 'not_started'
  code: NotStartedCode
  message: string
  /** It may work in a moment. */
  retryable: boolean
}

interface Start {
  argv: readonly string[]
  env: NodeJS.ProcessEnv
  cwd: string | null
}

/** What was started: as the leader of a session, and so of a group, of its own. */
export interface StartedProcess {
  process: CommandProcess
  root: TreeRoot
}

/** With nothing to read. A promise only when there is no process. */
export function startProcess({ argv, env, cwd }: Start): StartedProcess | Promise<CommandNotStarted> {
  const [program = '', ...rest] = argv
  if (program === '') return Promise.resolve(NO_PROGRAM)
  const failed = (error: Error) => notStarted(program, cwd, error)
  let child: ChildProcessByStdio<null, Readable, Readable> | null = null
  try {
    child = spawn(program, rest, {
      ...{ env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] },
      ...(cwd !== null && { cwd }),
    })
    const { pid } = child
    if (pid === undefined) return once(child, 'error').then(([error]) => failed(error as Error))
    // It cannot have been reaped within this turn of the event loop, so this is its own start time.
    return { process: child as CommandProcess, root: { pid, startTime: startTimeOf(pid) } }
  } catch (error) {
    child?.kill('SIGKILL') // without its start time nobody could find it later
    return Promise.resolve(failed(error as Error))
  }
}

const NO_PROGRAM: CommandNotStarted = {
  ...{ type: 'not_started', code: 'no_program', message: 'there is no program to run', retryable: false },
}

export function stoppedBefore(program: string): CommandNotStarted {
  return explain(program, 'stopped', 'it was stopped before', false)
}

const WHY_NOT: Record<string, [code: NotStartedCode, why: string]> = {
  ENOENT: ['program_not_found', 'it was not found'],
  EACCES: ['not_allowed', 'it may not be run, or its folder may not be entered'],
  EPERM: ['not_allowed', 'it may not be run'],
  ENOEXEC: ['not_allowed', 'it is no program for this system'],
  E2BIG: ['too_large', 'its arguments and variables are too large; pass what is large in a file'],
  ERR_INVALID_ARG_VALUE: ['invalid_argument', 'an argument or variable holds a NUL'],
  EAGAIN: ['no_resources', 'the system allows no more processes'],
  ENOMEM: ['no_resources', 'there is not enough memory'],
  EMFILE: ['no_resources', 'this process has too many open files'],
  ENFILE: ['no_resources', 'the system has too many open files'],
  ETXTBSY: ['no_resources', 'it is being written'],
}

function notStarted(program: string, cwd: string | null, error: Error): CommandNotStarted {
  const { code: errno = '' } = error as NodeJS.ErrnoException
  if ((errno === 'ENOENT' || errno === 'ENOTDIR') && cwd !== null && !isFolder(cwd))
    return explain(program, 'folder_not_found', `there is no folder '${cwd}'`, false)
  const [code, why] = WHY_NOT[errno] ?? ['unknown', error.message]
  return explain(program, code, why, code === 'no_resources' || code === 'unknown')
}

function explain(program: string, code: NotStartedCode, why: string, retryable: boolean): CommandNotStarted {
  return { type: 'not_started', code, message: `${program} could not be started: ${why}`, retryable }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
}
