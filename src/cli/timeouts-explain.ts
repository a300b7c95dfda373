/** `curfew timeouts explain FILE`: the limits a map-reduce would run with, and where each was set. */
import { Command } from 'commander'
import { checkFile, definitionOf, isMapreduceFile } from './definition-file.ts'
import { usageError } from './exit-code.ts'
import type { Io } from './io.ts'
import { planLimits } from './limit-plan.ts'
import { limitPlanLines } from './mapreduce-plan-text.ts'
import { jsonOption } from './options.ts'
import { printJson, printLines } from './print.ts'

export function explainFileCommand(io: Io): Command {
  const command = new Command('explain')
    .description('Print the limit of every command of a map-reduce, and where it was set; nothing is run')
    .argument('<file>', 'YAML or JSON')
    .addHelpText('after', '\nExample:\n  $ curfew timeouts explain pipeline.yml --json')
  return jsonOption(command).action(async (file: string, { json }: { json?: boolean }) => {
    const checked = definitionOf(await checkFile(io, file))
    if (!isMapreduceFile(checked)) {
      throw usageError(
        `${file} is a ${checked.kind}, and this is for a map-reduce`,
        `curfew graph ${file} draws it with its limits; curfew explain ID tells those of work that was started.`,
      )
    }
    const plan = planLimits(checked)
    if (json) printJson(io, plan)
    else printLines(io, limitPlanLines(io, plan))
  })
}
