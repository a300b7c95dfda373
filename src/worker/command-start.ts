/** Starting a command: its process, or why there is none. */
import { statSync } from 'node:fs'
import { startTimeOf } from './process-table.ts'
import type { TreeRoot } from './process-tree.ts'
import { signalGroup } from './process-tree.ts'
import type { SpawnedProcess, SpawnRequest } from './spawn.ts'
import { spawn } from './spawn.ts'

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

export interface StartedProcess {
  type: 'started'
  process: SpawnedProcess
  root: TreeRoot
}

/** Never rejects. */
export async function startProcess(request: SpawnRequest): Promise<StartedProcess | CommandNotStarted> {
  const { argv, cwd } = request
  const [program = ''] = argv
  if (program === '') return NO_PROGRAM
  let child: SpawnedProcess | null = null
  try {
    child = await spawn(request)
    const { pid } = child
    // It cannot have been reaped within this turn of the event loop, so this is its own start time.
    return { type: 'started', process: child, root: { pid, startTime: startTimeOf(pid) } }
  } catch (error) {
    if (child) {
      // Without its start time nobody could find it later. It may have started others by now.
      signalGroup({ pid: child.pid, startTime: null }, 'SIGKILL')
      for (const pipe of [child.stdout, child.stderr]) pipe.destroy()
    }
    return notStarted(program, cwd, error as Error)
  }
}

const NO_PROGRAM: CommandNotStarted = {
  ...{ type: 'not_started', code: 'no_program', message: 'there is no program to run', retryable: false },
}

export function stoppedBefore(program: string): CommandNotStarted {
  return notStarted(program, null, Object.assign(new Error(), { code: 'ECANCELED' }))
}

const WHY_NOT: Record<string, [code: NotStartedCode, why: string]> = {
  ENOENT: ['program_not_found', 'it was not found'],
  EACCES: ['not_allowed', 'it may not be run, or its folder may not be entered'],
  EPERM: ['not_allowed', 'it may not be run'],
  ENOEXEC: ['not_allowed', 'it is no program for this system'],
  E2BIG: ['too_large', 'its arguments and variables are too large; pass what is large in a file'],
  ERR_INVALID_ARG_VALUE: ['invalid_argument', 'an argument or variable holds a NUL'],
  ECANCELED: ['stopped', 'it was stopped before'],
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
