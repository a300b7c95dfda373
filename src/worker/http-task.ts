/** The action `http_request` as a task. How a request is made is `http-request.ts`. */
import { isIP } from 'node:net'
import { HTTP_REQUEST } from '../core/own-work.ts'
import type { TaskContext, TaskDefinition } from '../definitions/task.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { HttpRequest } from '../graph/graph-types.ts'

export interface HttpOptions {
  /** Requests may go to loopback and private addresses: all of them, or those of these host names. */
  allowPrivate?: boolean | readonly string[]
}

export function httpTask(options: HttpOptions): TaskDefinition {
  const run = async (input: HttpRequest, context: TaskContext) => {
    // What speaks HTTP takes longer to load than the rest of the engine.
    const { sendRequest } = await import('./http-request.ts')
    return sendRequest(input, options, context)
  }
  return {
    kind: 'task',
    name: HTTP_REQUEST,
    work: 'http_request',
    policy: DEFAULT_POLICY,
    isolation: 'inline',
    file: null,
    schema: null,
    run: run as TaskDefinition['run'],
  }
}

/** A host as it is compared: without brackets and without the dot of the root. Null: it is none. */
export function hostName(text: string): string | null {
  const plain = text.replace(/^\[(.*)\]$/, '$1')
  const url = `http://${isIP(plain) === 6 ? `[${plain}]` : plain}/`
  if ((isIP(plain) !== 6 && /[/:@?#\\\s]/.test(plain)) || !URL.canParse(url)) return null
  return hostOf(new URL(url))
}

export function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '')
}
