/** `curfew validate FILE…`: every problem of every file, with its line. Nothing is run, and no engine is needed. */
import { Command } from 'commander'
import { CurfewError } from '../core/errors.ts'
import type { DefinitionKind } from '../definitions/definition-kind.ts'
import type { Problem } from '../definitions/problem.ts'
import { formatProblem, hasErrors } from '../definitions/problem.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { Colours } from './colours.ts'
import { checkFile } from './definition-file.ts'
import { EXIT } from './exit-code.ts'
import type { Io } from './io.ts'
import { registryOf } from './known-names.ts'
import { loadModules } from './load-modules.ts'
import { collect, jsonOption } from './options.ts'
import { printable } from './plain-text.ts'
import { printJson, printLines } from './print.ts'

interface Result {
  file: string
  kind: DefinitionKind | null
  name: string | null
  valid: boolean
  problems: readonly Problem[]
}

export function validateCommand(io: Io): Command {
  const command = new Command('validate')
    .description('Check files that define workflows, jobs or map-reduces; nothing is run')
    .argument('<file...>', 'YAML or JSON')
    .option('--module <file>', 'check names against what it exports; may be given several times', collect)
    .addHelpText(
      'after',
      `
Examples:
  $ curfew validate nightly.yml
  $ curfew validate workflows/*.yml --module tasks.ts --json

Of a map-reduce, numbers and variables of the environment are those that are set here.

Exits 0 when nothing is wrong (warnings are allowed), else 2.`,
    )
  return jsonOption(command).action(
    async (files: string[], options: { module?: string[]; json?: boolean }) => {
      const registry = options.module && registryOf(await loadModules(options.module, io.cwd))
      const results: Result[] = []
      for (const file of files) results.push(await validate(io, file, registry))
      if (options.json) printJson(io, { valid: results.every(({ valid }) => valid), files: results })
      else
        printLines(
          io,
          results.flatMap((result) => resultLines(io, result)),
        )
      if (!results.every(({ valid }) => valid)) io.exitCode = EXIT.usage
    },
  )
}

async function validate(io: Io, file: string, registry: Registry | undefined): Promise<Result> {
  try {
    const { kind, definition, problems } = await checkFile(io, file, { registry })
    const name = definition?.model.name ?? null
    return { file, kind, name, valid: !hasErrors(problems), problems }
  } catch (error) {
    // One file that cannot be read does not hide what is wrong with the others.
    if (!(error instanceof CurfewError)) throw error
    const { code, hint: suggestion = null } = error
    const message = error.message.split('\n', 1)[0]!.replace(`${file} `, 'it ')
    const place = { file, line: null, column: null, path: '' }
    const problems: Problem[] = [{ severity: 'error', code, message, suggestion, ...place }]
    return { file, kind: null, name: null, valid: false, problems }
  }
}

function resultLines(io: Io, { file, kind, name, valid, problems }: Result): string[] {
  const colours = new Colours(io, io.stdout)
  const told = problemLines(colours, problems)
  if (!valid) return told
  const word = kind === 'mapreduce' ? 'map-reduce' : kind
  const of = name === null ? `a ${word}` : `${word} ${name}`
  return [...told, `${file}: ${printable(of)} ${colours.style('green', 'is valid')}`]
}

export function problemLines(colours: Colours, problems: readonly Problem[]): string[] {
  return problems.map((problem) => {
    const { severity } = problem
    const coloured = colours.style(severity === 'error' ? 'red' : 'yellow', `${severity}:`)
    return printable(formatProblem(problem)).replace(`${severity}:`, coloured)
  })
}
