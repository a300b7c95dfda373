/** `curfew graph FILE`: a workflow, job or map-reduce as Mermaid text. */
import { Command } from 'commander'
import { jobGraph } from '../definitions/job-graph.ts'
import { shapeOf } from '../definitions/mapreduce-outline.ts'
import { graph } from '../definitions/workflow-graph.ts'
import { mapreduceGraph } from '../graph/mapreduce-graph.ts'
import type { ValidFile } from './definition-file.ts'
import { checkFile, definitionOf } from './definition-file.ts'
import { usageError } from './exit-code.ts'
import type { Io } from './io.ts'
import { jsonOption } from './options.ts'
import { printJson } from './print.ts'

export function graphCommand(io: Io): Command {
  const command = new Command('graph')
    .description('Draw a workflow, job or map-reduce as Mermaid text, with its limits')
    .argument('<file>', 'YAML or JSON')
    .option(
      '--workflow <id>',
      'of a job: this one of its workflows, when it is written in the file or a map-reduce',
    )
    .addHelpText(
      'after',
      `
Examples:
  $ curfew graph research.yml > research.mmd
  $ curfew graph nightly.yml --workflow check`,
    )
  return jsonOption(command).action(async (file: string, options: { workflow?: string; json?: boolean }) => {
    const checked = definitionOf(await checkFile(io, file))
    const mermaid = draw(checked, options.workflow)
    if (options.json) {
      const { kind, definition } = checked
      printJson(io, { file, kind, name: definition.model.name ?? null, mermaid })
    } else io.stdout.write(mermaid)
  })
}

function draw({ file, kind, definition, members }: ValidFile, workflow: string | undefined): string {
  if (definition.kind !== 'job') {
    if (workflow !== undefined) throw usageError(`--workflow: ${file} is a ${kind}, not a job`)
    return graph(
      definition.kind === 'workflow' ? definition : { model: mapreduceGraph(shapeOf(definition.model)) },
    )
  }
  if (workflow === undefined) return jobGraph(definition)
  const { workflows } = definition.model
  const found = workflows.find(({ id }) => id === workflow)
  if (!found) {
    throw usageError(
      `--workflow: ${file} has no workflow '${workflow}'`,
      `It has ${workflows.map(({ id }) => id).join(', ')}.`,
    )
  }
  const member = members.find(({ id }) => id === workflow)
  if (member) return graph({ model: mapreduceGraph(shapeOf(member.model)) })
  if (!found.definition) {
    throw usageError(`--workflow: ${file} has only the name of ${workflow}: ${found.kind} ${found.name}`)
  }
  return graph({ model: found.definition })
}
