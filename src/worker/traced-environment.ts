/** The trace that a process continues: that of its task, never its worker's, which may have been started under one too. */
import type { TraceContext } from '../core/trace-context.ts'

export function tracedEnvironment(
  { TRACEPARENT: _, TRACESTATE: __, ...env }: NodeJS.ProcessEnv,
  trace: TraceContext | null,
): NodeJS.ProcessEnv {
  if (trace === null) return env
  const { traceparent, tracestate } = trace
  return { ...env, TRACEPARENT: traceparent, ...(tracestate && { TRACESTATE: tracestate }) }
}
