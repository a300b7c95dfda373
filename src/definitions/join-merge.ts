/** What a join makes of the outputs of its branches: always in the order of the branches, never of their arrival. */
import { CurfewError } from '../core/errors.ts'
import type { JsonObject } from './context-path.ts'
import { UNSAFE_KEYS } from './definition-text.ts'

export const MERGE_STRATEGIES = ['append', 'collect', 'merge_object', 'keyed_by_branch', 'last_wins'] as const
export type MergeStrategy = (typeof MERGE_STRATEGIES)[number]

export interface BranchOutput {
  branch: number
  value: unknown
}

/** Throws `merge_failed` when the outputs are not what the strategy needs. */
export function mergeOutputs(strategy: MergeStrategy, outputs: readonly BranchOutput[]): unknown {
  const ordered = outputs.toSorted((a, b) => a.branch - b.branch)
  const values = ordered.map(({ value }) => value)
  switch (strategy) {
    case 'append':
      // One level, and only when every output is a list: one that is not would change the shape of the others.
      return values.every((value) => Array.isArray(value)) ? values.flat(1) : values
    case 'collect':
      return values
    case 'merge_object':
      return mergeObjects(ordered)
    case 'keyed_by_branch':
      return Object.fromEntries(ordered.map(({ branch, value }) => [String(branch), value]))
    case 'last_wins':
      return values.at(-1) ?? null
  }
}

/** Key by key, not deeper; the highest branch wins. */
function mergeObjects(ordered: readonly BranchOutput[]): JsonObject {
  const merged: JsonObject = {}
  for (const { branch, value } of ordered) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      const what = Array.isArray(value) ? 'a list' : value === null ? 'null' : `a ${typeof value}`
      throw new CurfewError('merge_failed', `merge_object needs objects, but branch ${branch} gave ${what}`, {
        hint: "Use 'collect', or give each branch an object.",
        fields: { branch },
      })
    }
    for (const [key, item] of Object.entries(value)) if (!UNSAFE_KEYS.includes(key)) merged[key] = item
  }
  return merged
}
