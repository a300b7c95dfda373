/** A W3C trace context: given with a call, stored with the work, handed on to everything below it and to handlers. */
import { CurfewError } from './errors.ts'

export interface TraceContext {
  /** `00-<trace id>-<parent id>-<flags>`, hexadecimal in lower case. */
  traceparent: string
  tracestate?: string
}

const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/
/** They reach handlers as environment variables: nothing that could not stand there. */
const TRACESTATE = /^[ -~]{0,512}$/

/** The trace as it is kept, or `invalid_option`. `at`: what it was given for. */
export function checkTrace(at: string, trace: unknown): TraceContext {
  if (typeof trace !== 'object' || trace === null)
    throw invalid(at, 'trace', `must be { traceparent, tracestate? }, got ${String(trace)}`)
  const { traceparent, tracestate, ...unknown } = trace as Record<string, unknown>
  const [key] = Object.keys(unknown)
  if (key !== undefined)
    throw invalid(at, `trace.${key}`, 'is not known; there are traceparent and tracestate')
  if (typeof traceparent !== 'string' || !TRACEPARENT.test(traceparent)) {
    const why = `must be 00-<32 hex>-<16 hex>-<2 hex> in lower case, its ids not all zeros, got ${shown(traceparent)}`
    throw invalid(at, 'trace.traceparent', why)
  }
  if (tracestate === undefined || tracestate === '') return { traceparent }
  if (typeof tracestate !== 'string' || !TRACESTATE.test(tracestate)) {
    const why = `must be at most 512 printable ASCII characters, got ${shown(tracestate)}`
    throw invalid(at, 'trace.tracestate', why)
  }
  return { traceparent, tracestate }
}

/** Of headers: what is broken in them is left out, for a proxy on the way may have broken it. */
export function traceOfHeaders(traceparent: string | null, tracestate: string | null): TraceContext | null {
  if (traceparent === null || !TRACEPARENT.test(traceparent)) return null
  return tracestate && TRACESTATE.test(tracestate) ? { traceparent, tracestate } : { traceparent }
}

function shown(value: unknown): string {
  if (typeof value !== 'string') return String(value)
  return value.length > 80 ? `${value.length} characters` : JSON.stringify(value)
}

function invalid(at: string, key: string, why: string): CurfewError {
  return new CurfewError('invalid_option', `${at}: ${key} ${why}`, { fields: { key } })
}
