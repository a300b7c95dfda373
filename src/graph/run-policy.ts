/** The policy of a run: the limits of its definition as those of the agent that runs it. */
import type { Duration } from '../core/duration.ts'
import { durationMs } from '../core/duration.ts'
import { AGENT_POLICY } from '../definitions/agent-policy.ts'
import type { JobModel } from '../definitions/job-model.ts'
import type { Origin, TaskPolicy } from '../definitions/task-policy.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'

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
    ...AGENT_POLICY,
    timeoutMs,
    label: model.name,
    failsOnTimeout: model.onTimeout === 'fail',
    warnAt: model.warnAt ?? AGENT_POLICY.warnAt,
    origins: { timeout: origin },
  }
  policies.set(model, policy)
  return policy
}

/** With the timeout of a single call, if it has one. `at`: where that stands. */
export function calledPolicy(
  model: WorkflowModel,
  timeout: Duration | null | undefined,
  at: string,
): TaskPolicy {
  if (timeout === undefined) return workflowPolicy(model, model.timeoutMs)
  return workflowPolicy(model, timeout === null ? null : durationMs(timeout, `${at}: timeout`), 'call')
}

export function jobName({ name, workflows: [first] }: JobModel): string {
  return name ?? first?.id ?? 'job'
}

export function jobPolicy(model: JobModel): TaskPolicy {
  return {
    ...AGENT_POLICY,
    label: jobName(model),
    timeoutMs: model.timeoutMs,
    warnAt: model.warnAt ?? AGENT_POLICY.warnAt,
    origins: { timeout: 'definition' },
  }
}
