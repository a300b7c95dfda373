/** A policy as it stands in a task's row: only what differs from the defaults. */
import type { TaskPolicy } from './task-policy.ts'
import { DEFAULT_POLICY } from './task-policy.ts'

const encoded = new WeakMap<TaskPolicy, string>()
const decoded = new Map<string, TaskPolicy>()
/** Policies are few, one per definition and set of call options; beyond this they are parsed again. */
const MOST_DECODED = 1_000

export function encodePolicy(policy: TaskPolicy): string {
  let text = encoded.get(policy)
  if (text === undefined) {
    const differences = Object.entries(policy).filter(
      ([key, value]) => JSON.stringify(value) !== JSON.stringify(DEFAULT_POLICY[key as keyof TaskPolicy]),
    )
    text = JSON.stringify(Object.fromEntries(differences))
    encoded.set(policy, text)
  }
  return text
}

export function decodePolicy(text: string): TaskPolicy {
  let policy = decoded.get(text)
  if (!policy) {
    policy = { ...DEFAULT_POLICY, ...(JSON.parse(text) as Partial<TaskPolicy>) }
    if (decoded.size >= MOST_DECODED) decoded.clear()
    decoded.set(text, policy)
  }
  return policy
}

/** For those who only look at a record: one whose policy cannot be read is shown without its limits. */
export function readablePolicy(text: string): TaskPolicy {
  try {
    return decodePolicy(text)
  } catch {
    return DEFAULT_POLICY // whoever decides about it parks it, with the reason
  }
}
