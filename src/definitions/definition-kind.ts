/** What a definition in text is, told by its keys alone: its reader tells what is wrong with it. */
import { parseText } from './definition-text.ts'

export type DefinitionKind = 'workflow' | 'job' | 'mapreduce'

/** A job lists workflows. What cannot be read is a workflow, whose problems are told. */
export function definitionKind(text: string): DefinitionKind {
  const value = parseText(text).root?.value
  if (typeof value !== 'object' || value === null) return 'workflow'
  const { mode } = value as { mode?: unknown }
  if (mode === 'mapreduce' || mode === 'MapReduce') return 'mapreduce'
  return Object.hasOwn(value, 'workflows') ? 'job' : 'workflow'
}
