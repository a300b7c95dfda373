/** A job as Mermaid text: its workflows, and which waits for which. */
import { formatDuration } from '../core/duration.ts'
import type { JobDefinition } from './job.ts'
import type { JobModel, JobWorkflowModel } from './job-model.ts'
import { label } from './workflow-graph.ts'

export function jobGraph({ model }: JobDefinition | { model: JobModel }): string {
  // Ids of users may hold anything; those of the drawing are numbers.
  const ids = new Map(model.workflows.map(({ id }, i) => [id, `n${i}`]))
  const limit = model.timeoutMs === null ? 'no limit' : `≤ ${formatDuration(model.timeoutMs)}`
  const name = model.name ?? model.workflows[0]?.id ?? 'job'
  const lines = ['---', `title: ${JSON.stringify(`${name} (${limit})`)}`, '---', 'flowchart TD']
  for (const workflow of model.workflows) {
    lines.push(`  ${ids.get(workflow.id)}[${label(workflowLines(workflow))}]`)
  }
  for (const { id, dependsOn, runIf } of model.workflows) {
    const arrow = runIf === 'completed' ? '-->' : `-- ${label([`run if ${runIf}`])} -->`
    for (const other of dependsOn) lines.push(`  ${ids.get(other)} ${arrow} ${ids.get(id)}`)
  }
  return `${lines.join('\n')}\n`
}

function workflowLines({ id, kind, name, definition }: JobWorkflowModel): string[] {
  const lines = name === id && kind === 'workflow' ? [id] : [id, `${kind} ${name}`]
  const timeoutMs = definition?.timeoutMs ?? null
  if (timeoutMs !== null) lines.push(`≤ ${formatDuration(timeoutMs)}`)
  return lines
}
