/**
 * What the supervisor of a worker calls when the worker has died: everything it ran has been ended, so its manager
 * need not wait for the lease. Runs in the supervisor.
 */
import { SystemClock } from '../core/system-clock.ts'
import { post } from '../wire/http-post.ts'

export interface ObituaryArgument {
  workerId: string
  token: string | undefined
  tls: { ca?: string; cert?: string; key?: string } | undefined
  managers: { href: string; socketPath: string | undefined }[]
}

const ANSWER_WITHIN_MS = 2_000
const MAX_ANSWER_BYTES = 10_000

/** `left`: what could not be ended. Then the lease has to be waited for. Rejects, to be tried again, where nobody answers. */
export default async function tellManagers(argument: unknown, report: { left: unknown[] }): Promise<void> {
  if (report.left.length > 0) return
  const { managers, ...who } = argument as ObituaryArgument
  const told = await Promise.allSettled(managers.map((manager) => tell(manager, who)))
  const failed = told.find(({ status }) => status === 'rejected')
  if (failed && told.every(({ status }) => status === 'rejected'))
    throw (failed as PromiseRejectedResult).reason
}

async function tell(
  { href, socketPath }: ObituaryArgument['managers'][number],
  { workerId, token, tls }: Omit<ObituaryArgument, 'managers'>,
): Promise<void> {
  const { status } = await post(
    { origin: href, socketPath, tls },
    {
      ...{ path: 'curfew.v1.WorkerService/Leave', contentType: 'application/json', token },
      body: JSON.stringify({ workerId, receipt: 'killed' }),
      ...{ clock: new SystemClock(), timeoutMs: ANSWER_WITHIN_MS, maxAnswerBytes: MAX_ANSWER_BYTES },
    },
  )
  if (status !== 200) throw new Error(`status ${status}`)
}
