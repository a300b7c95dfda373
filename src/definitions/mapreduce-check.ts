/** What a map-reduce means, checked before anything runs: values in texts, expressions, names. All problems at once. */
import type { Field } from './definition-field.ts'
import type { Expression } from './expression.ts'
import { compileExpression, isFault } from './expression.ts'
import { compileJsonPath } from './item-selection.ts'
import { checkMapreduceLimits } from './mapreduce-limits-check.ts'
import type { MapreduceModel, StepModel } from './mapreduce-model.ts'
import { SHELL_TYPE } from './mapreduce-model.ts'
import type { Places } from './places.ts'
import { hasErrors } from './problem.ts'
import { scanShell } from './shell-scan.ts'
import { parseArgument } from './step-template.ts'
import type { TemplatePath } from './template-path.ts'
import { RESERVED_NAMES, TemplateScope } from './template-scope.ts'

/** What is known outside the file; what is left out is not known, and taken to be there. */
export interface KnownNames {
  env?: Readonly<Record<string, string | undefined>>
  params?: Readonly<Record<string, string>>
}

export function checkMapreduce(model: MapreduceModel, places: Places, known: KnownNames): void {
  const { root } = places
  const { env } = known
  const environment = env && Object.keys(env).filter((name) => env[name] !== undefined)
  const outside = TemplateScope.of(known.params ? Object.keys(known.params) : null, environment ?? null)
  for (const [name, text] of Object.entries(model.env))
    checkArgument(root.at('env').child(name), text, outside)
  const base = outside.withTexts([...Object.keys(model.env), ...model.secrets])
  for (const [name, argv] of Object.entries(model.runners)) {
    const field = root.at('runners').child(name)
    argv.forEach((part, i) => void checkArgument(field.child(i), part, base))
  }
  checkSecrets(model, root, environment ?? null)
  const check = new StepCheck(model, places)
  const afterSetup = check.steps(model.setup.steps, base)
  checkItems(model, root.at('map'), afterSetup)
  check.steps(model.map.template, afterSetup.withItem())
  const afterReduce = check.steps(model.reduce.steps, afterSetup.withResults())
  check.steps(model.merge.steps, afterReduce)
  // Advice on what may have been read wrong helps nobody.
  if (!hasErrors(root.source.problems)) checkMapreduceLimits(model, places)
}

function checkSecrets(model: MapreduceModel, root: Field, environment: readonly string[] | null): void {
  for (const [i, name] of model.secrets.entries()) {
    const field = root.at('secrets').child(i)
    const written = Object.hasOwn(model.env, name) ? model.env[name]! : null
    if (written !== null && !written.includes('${')) {
      field.warning('secret_in_file', `the value of ${name} stands in env, and is stored with each run`, {
        suggestion: 'Leave it out of env: it is taken from the environment.',
      })
    } else if (written === null && environment && !environment.includes(name)) {
      field.warning('unknown_variable', `the environment variable ${name} is not set`)
    }
  }
}

function checkItems({ map }: MapreduceModel, field: Field, scope: TemplateScope): void {
  const input = field.at('input')
  if (map.input.kind === 'file')
    checkArgument(typeof input.value === 'string' ? input : input.at('file'), map.input.file, scope)
  else if (map.input.kind === 'command') checkShell(input.at('command'), map.input.command, scope)
  if (map.jsonPath !== null) {
    const compiled = compileJsonPath(map.jsonPath)
    if ('message' in compiled) tell(field.at('jsonPath'), compiled, 'invalid_path')
  }
  if (map.filter === null) return
  const filter = checkExpression(field.at('filter'), map.filter)
  for (const { name, offset } of filter?.references ?? []) {
    if (name === 'item') continue
    const message = `there is no variable '${name}' in a filter`
    field.at('filter').problem('unknown_variable', message, { suggestion: 'There is item.', offset })
  }
}

class StepCheck {
  readonly #model: MapreduceModel
  readonly #places: Places

  constructor(model: MapreduceModel, places: Places) {
    this.#model = model
    this.#places = places
  }

  /** Returns what is known behind them. */
  steps(steps: readonly StepModel[], before: TemplateScope): TemplateScope {
    let scope = before
    for (const step of steps) {
      this.#step(step, scope)
      this.steps(step.onFailure, scope.withFailure())
      if (step.capture !== null) scope = scope.withTexts([step.capture])
      this.steps(step.onSuccess, scope)
    }
    return scope
  }

  #step(step: StepModel, scope: TemplateScope): void {
    const field = this.#places.of(step)
    for (const [name, text] of Object.entries(step.env))
      checkArgument(field.at('env').child(name), text, scope)
    const inside = scope.withTexts(Object.keys(step.env))
    if (step.type === SHELL_TYPE) checkShell(field.child(step.type), step.text, inside)
    else checkArgument(field.child(step.type), step.text, inside)
    if (step.workingDir !== null) checkArgument(field.at('workingDir'), step.workingDir, inside)
    if (step.when !== null) {
      for (const { name, path, offset } of checkExpression(field.at('when'), step.when)?.references ?? [])
        checkPath(field.at('when'), [name, ...path], offset, inside)
    }
    this.#checkCapture(step, field)
  }

  #checkCapture({ capture, env }: StepModel, field: Field): void {
    if (capture === null) return
    const place = field.at('capture')
    if (RESERVED_NAMES.includes(capture))
      place.problem('invalid_name', `'${capture}' is something else already`)
    else if (Object.hasOwn(this.#model.env, capture) || Object.hasOwn(env, capture))
      place.problem('invalid_name', `'${capture}' is a variable of env already`)
  }
}

function checkShell(field: Field, text: string, scope: TemplateScope): void {
  const { pieces, faults } = scanShell(text)
  for (const fault of faults) tell(field, fault, 'invalid_template')
  for (const piece of pieces) {
    if (typeof piece === 'string') continue
    const fault = scope.fault(piece.path)
    if (!fault) continue
    const [root] = piece.path
    const own = fault.isForeign ? ` A variable of the shell is $${root}.` : ''
    const suggestion = fault.suggestion + own
    field.problem('unknown_variable', fault.message, { suggestion, offset: piece.offset })
  }
}

function checkArgument(field: Field, text: string, scope: TemplateScope): void {
  const { pieces, faults } = parseArgument(text)
  for (const fault of faults) tell(field, fault, 'invalid_template')
  for (const piece of pieces) if (typeof piece !== 'string') checkPath(field, piece.path, piece.offset, scope)
}

function checkPath(field: Field, path: TemplatePath, offset: number, scope: TemplateScope): void {
  const fault = scope.fault(path)
  if (fault) field.problem('unknown_variable', fault.message, { suggestion: fault.suggestion, offset })
}

function checkExpression(field: Field, text: string): Expression | null {
  const expression = compileExpression(text)
  if (!isFault(expression)) return expression
  tell(field, expression, 'invalid_expression')
  return null
}

function tell(
  field: Field,
  { message, suggestion, offset }: { message: string; suggestion: string | null; offset: number },
  code: string,
): void {
  field.problem(code, message, { suggestion, offset })
}
