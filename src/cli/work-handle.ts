/** The handle of a piece of work, by what its id says it is. */
import type { Client } from '../client/client.ts'
import type { AgentHandle, JobHandle, TaskHandle, WorkflowHandle } from '../curfew.ts'

export type AnyHandle = TaskHandle | AgentHandle | WorkflowHandle | JobHandle

export function handleOf(client: Client, id: string): AnyHandle {
  if (id.startsWith('j_')) return client.job(id)
  if (id.startsWith('w_')) return client.workflow(id)
  return id.startsWith('g_') ? client.agent(id) : client.task(id)
}
