/** The policy of a run: the limits of its definition as those of the agent that runs it. */
import type { JobModel } from '../definitions/job-model.ts'
import type { Origin, TaskPolicy } from '../definitions/task-policy.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'

const OF_RUNS: TaskPolicy = { ...DEFAULT_POLICY, queue: '', graceMs: 0 }

/** The last of each: one object is encoded once. */
const policies = new WeakMap<WorkflowModel, TaskPolicy>()

/** `origin`: who set the timeout. */
export function workflowPolicy(
  model: WorkflowModel,
  timeoutMs: number | null,
  origin: Origin = 'definition',
): TaskPolicy {
  const known = policies.get(model)
  if (known && known.timeoutMs === timeoutMs && known.origins.timeout === origin) return known
  const policy: TaskPolicy = {
    ...OF_RUNS,
    timeoutMs,
    label: model.name,
    failsOnTimeout: model.onTimeout === 'fail',
    warnAt: model.warnAt ?? OF_RUNS.warnAt,
    origins: { timeout: origin },
  }
  policies.set(model, policy)
  return policy
}

export function jobPolicy(model: JobModel): TaskPolicy {
  return {
    ...OF_RUNS,
    label: model.name ?? model.workflows[0]?.id ?? 'job',
    timeoutMs: model.timeoutMs,
    warnAt: model.warnAt ?? OF_RUNS.warnAt,
    origins: { timeout: 'definition' },
  }
}
