/** Errors across the wire: the code, message, hint and fields of a `CurfewError` arrive as they left. */
import { Code, ConnectError } from '@connectrpc/connect'
import { CurfewError } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import type { ErrorDetail } from './gen/curfew/v1/work_pb.ts'
import { ErrorDetailSchema } from './gen/curfew/v1/work_pb.ts'

const CODES: Record<string, Code> = {
  not_found: Code.NotFound,
  task_not_found: Code.NotFound,
  refused: Code.FailedPrecondition,
  read_only: Code.FailedPrecondition,
  unknown_task: Code.FailedPrecondition,
  stale_fence: Code.FailedPrecondition,
  being_retried: Code.FailedPrecondition,
  key_conflict: Code.AlreadyExists,
  overloaded: Code.ResourceExhausted,
  too_big: Code.ResourceExhausted,
  store_unavailable: Code.Unavailable,
  store_full: Code.Unavailable,
  commit_unknown: Code.Unavailable,
  not_leading: Code.Unavailable,
  closed: Code.Unavailable,
  unauthenticated: Code.Unauthenticated,
  permission_denied: Code.PermissionDenied,
  version_mismatch: Code.FailedPrecondition,
}

/** What writing to a connection that was cut fails with. */
const CUT = ['ERR_STREAM_DESTROYED', 'ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET', 'ECANCELED', 'EPIPE']

export function toConnectError(error: unknown, logger: Logger): ConnectError {
  if (error instanceof ConnectError) return error
  if (CUT.includes((error as NodeJS.ErrnoException | null)?.code ?? ''))
    return new ConnectError('the caller has gone', Code.Canceled)
  if (!(error instanceof CurfewError)) {
    // A bug of ours: what it says is for the log.
    logger.error(
      { error: String(error), stack: (error as Error)?.stack },
      'a request failed for a reason of ours',
    )
    return new ConnectError('something went wrong here; the log says what', Code.Internal)
  }
  const { code } = error
  const invalid = code.startsWith('invalid_') || code.startsWith('unknown_') || code.startsWith('too_')
  return new ConnectError(
    error.message,
    CODES[code] ?? (invalid ? Code.InvalidArgument : Code.Unknown),
    undefined,
    [{ desc: ErrorDetailSchema, value: detailOf(error) }],
  )
}

export function detailOf(error: CurfewError) {
  const { code, hint, fields } = error
  return {
    code,
    message: plainMessage(error),
    ...(hint !== undefined && { hint }),
    fields: jsonFields(fields),
  }
}

export function errorOfDetail({ code, message, hint, fields }: ErrorDetail, cause?: unknown): CurfewError {
  return new CurfewError(code, message, { ...(hint !== undefined && { hint }), fields: { ...fields }, cause })
}

/** `reached`: whether somebody has answered; nobody did when it was the connection that failed. */
export function fromConnectError(error: unknown): CurfewError {
  if (error instanceof CurfewError) return error
  const connect = ConnectError.from(error)
  const [detail] = connect.findDetails(ErrorDetailSchema)
  if (detail) return errorOfDetail(detail, error)
  const refused = refusedByTls(causeOf(connect), error)
  if (refused) return refused
  const known = isOfConnection(connect) ? 'unreachable' : (PLAIN_CODES[connect.code] ?? 'unreachable')
  // Of what a proxy refuses nothing may arrive but the status.
  const [bare, status = ''] = /^HTTP (\d+)$/.exec(connect.rawMessage) ?? []
  const code = PROXY_CODES[status] ?? known
  const message = (bare ? PLAIN_MESSAGES[code] : undefined) ?? connect.rawMessage.trim()
  return new CurfewError(code, message, { cause: error })
}

/** What a connection fails with that could not be made, or that went. */
const NO_CONNECTION = [
  'ENOENT',
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'ETIMEDOUT',
  'EAI_AGAIN',
]

/** Before a request is sent: null where that is not why. */
function refusedByTls(
  { code: errno = '', message: text = '' }: Partial<NodeJS.ErrnoException>,
  cause: unknown,
): CurfewError | null {
  if (errno === 'ERR_SSL_WRONG_VERSION_NUMBER' || (errno === 'EPROTO' && WRONG_VERSION_NUMBER.test(text))) {
    return new CurfewError('no_tls', 'whoever answers there does not speak TLS', {
      hint: 'Try http:// instead of https://.',
      cause,
    })
  }
  const [why, hint] = DISTRUSTED[errno] ?? []
  if (why !== undefined && hint !== undefined) {
    const message = `the certificate of the manager is not trusted: ${why}`
    return new CurfewError('untrusted_certificate', message, { hint, cause })
  }
  if (!/^ERR_SSL_TLS.*_ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNKNOWN_CA|UNSUPPORTED_CERTIFICATE)/.test(errno))
    return null
  return new CurfewError('unauthenticated', 'the manager wants a client certificate that it knows', {
    hint: 'Give one: --tls-client-cert and --tls-client-key, CURFEW_TLS_CLIENT_CERT and CURFEW_TLS_CLIENT_KEY, or tls.',
    cause,
  })
}

/** OpenSSL's number for it, which Node hands on in the text alone where a write fails with it. */
const WRONG_VERSION_NUMBER = /:0A00010B:/
const GIVE_AUTHORITY = 'Give the certificate of its authority: --tls-ca, CURFEW_TLS_CA or tls.ca.'
const DISTRUSTED: Record<string, [why: string, hint: string]> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: ['it signed itself', GIVE_AUTHORITY],
  SELF_SIGNED_CERT_IN_CHAIN: ['its authority is not known here', GIVE_AUTHORITY],
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: ['its authority is not known here', GIVE_AUTHORITY],
  UNABLE_TO_GET_ISSUER_CERT: ['its authority is not known here', GIVE_AUTHORITY],
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: ['its authority is not known here', GIVE_AUTHORITY],
  CERT_HAS_EXPIRED: ['it has expired', 'Give the manager a new one.'],
  CERT_NOT_YET_VALID: ['it is not valid yet', 'Look at the clocks of both machines.'],
  ERR_TLS_CERT_ALTNAME_INVALID: ['it is for another name', 'Call the manager by a name of its certificate.'],
}

function causeOf({ cause }: Error): Partial<NodeJS.ErrnoException> {
  return (cause ?? {}) as Partial<NodeJS.ErrnoException>
}

/** What one does that wants another greeting: a manager with TLS, which was called without. */
export function isCut(error: unknown): boolean {
  return causeOf(ConnectError.from(error)).code === 'ECONNRESET'
}

/** The library knows some of them, and calls the others failures of its own. */
function isOfConnection(error: ConnectError): boolean {
  const { code = '' } = causeOf(error)
  return NO_CONNECTION.includes(code) || (CUT.includes(code) && code !== 'ECANCELED')
}

const PLAIN_MESSAGES: Record<string, string> = {
  unauthenticated: 'the manager wants a token that it knows',
  permission_denied: 'the role of this token may not do that',
  too_big: 'a proxy before the manager does not let so large a request through',
}

/** The library takes them for something that passes. */
const PROXY_CODES: Record<string, string> = { 413: 'too_big' }

/** Of errors that come from the transport, and of refusals before a request was looked at. */
const PLAIN_CODES: Partial<Record<Code, string>> = {
  [Code.Unauthenticated]: 'unauthenticated',
  [Code.PermissionDenied]: 'permission_denied',
  [Code.InvalidArgument]: 'invalid_request',
  [Code.ResourceExhausted]: 'too_big',
  [Code.Unimplemented]: 'version_mismatch',
  [Code.Internal]: 'server_failed',
  [Code.DeadlineExceeded]: 'unreachable',
  [Code.Unavailable]: 'unreachable',
  [Code.Canceled]: 'closed',
}

/** Nothing was decided, or it may be asked again without harm. */
export function isWorthRetrying(error: CurfewError): boolean {
  return RETRIED.has(error.code)
}

const RETRIED = new Set([
  'unreachable',
  'store_unavailable',
  'commit_unknown',
  'not_leading',
  'closed',
  'overloaded',
])

function plainMessage({ message, hint }: CurfewError): string {
  return hint !== undefined && message.endsWith(`\n  ${hint}`) ? message.slice(0, -hint.length - 3) : message
}

function jsonFields(fields: Record<string, unknown>): Record<string, never> {
  try {
    return JSON.parse(JSON.stringify(fields)) as Record<string, never>
  } catch {
    return {} // a field that is no JSON is of use only where it was made
  }
}
