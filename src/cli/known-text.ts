/** What can be told of the texts of a map-reduce before it runs. */
import { CurfewError } from '../core/errors.ts'
import type { MapreduceModel } from '../definitions/mapreduce-model.ts'
import type { TemplateValues } from '../definitions/step-template.ts'
import { renderArgument } from '../definitions/step-template.ts'
import type { Io } from './io.ts'
import type { MapreduceValuesGiven } from './mapreduce-flags.ts'

/** The environment, that of the file over it, and what the call gave. What is captured is not known yet. */
export function knownValues(
  { env }: Pick<Io, 'env'>,
  model: MapreduceModel,
  { args, params }: MapreduceValuesGiven,
): TemplateValues {
  const outside: Record<string, unknown> = { ...env, args, params }
  const own = Object.entries(model.env).flatMap(([name, text]) => {
    const value = knownText(text, outside)
    return value === null ? [] : [[name, value] as const]
  })
  return { ...env, ...Object.fromEntries(own), args, params }
}

/** Null where it names something that only a run can tell. */
export function knownText(text: string, values: TemplateValues): string | null {
  try {
    return renderArgument(text, values)
  } catch (error) {
    if (error instanceof CurfewError && error.code === 'unknown_variable') return null
    throw error
  }
}
