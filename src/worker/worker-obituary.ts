/**
 * What the supervisor of a worker calls when the worker has died: everything it ran has been ended, so its manager
 * need not wait for the lease. Runs in the supervisor.
 */
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'

export interface ObituaryArgument {
  workerId: string
  token: string | undefined
  tls: { ca?: string; cert?: string; key?: string } | undefined
  managers: { href: string; socketPath: string | undefined }[]
}

const ANSWER_WITHIN_MS = 2_000
const PATH = '/curfew.v1.WorkerService/Leave'

/** `left`: what could not be ended. Then the lease has to be waited for. Rejects, to be tried again, where nobody answers. */
export default async function tellManagers(argument: unknown, report: { left: unknown[] }): Promise<void> {
  if (report.left.length > 0) return
  const { managers, ...who } = argument as ObituaryArgument
  const told = await Promise.allSettled(managers.map((manager) => tell(manager, who)))
  const failed = told.find(({ status }) => status === 'rejected')
  if (failed && told.every(({ status }) => status === 'rejected'))
    throw (failed as PromiseRejectedResult).reason
}

function tell(
  { href, socketPath }: ObituaryArgument['managers'][number],
  { workerId, token, tls }: Omit<ObituaryArgument, 'managers'>,
): Promise<void> {
  const url = new URL(PATH, href)
  return new Promise((resolve, reject) => {
    const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(
      url,
      {
        ...{ method: 'POST', timeout: ANSWER_WITHIN_MS, ...tls },
        ...(socketPath !== undefined && { socketPath }),
        headers: {
          'content-type': 'application/json',
          'connect-protocol-version': '1',
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
        },
      },
      (response) => {
        response.resume()
        response.on('end', () =>
          response.statusCode === 200 ? resolve() : reject(new Error(`status ${response.statusCode}`)),
        )
      },
    )
    request.on('timeout', () => request.destroy(new Error('no answer')))
    request.on('error', reject)
    request.end(JSON.stringify({ workerId, receipt: 'killed' }))
  })
}
