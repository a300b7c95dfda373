// Between callers and a manager: an HTTP proxy, which looks at each request before it lets it through.

import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface HttpProxy {
  url: string
  /** The paths that were asked for, in order. */
  readonly seen: readonly string[]
  close(): Promise<void>
}

/** `under`: taken off each path. `refuse`: the status to answer with instead, if it answers one. */
export async function httpProxy(
  to: string,
  {
    under = '',
    refuse = () => null,
  }: { under?: string; refuse?: (path: string, bytes: number) => number | null },
): Promise<HttpProxy> {
  const seen: string[] = []
  const pass = async (from: IncomingMessage, answer: ServerResponse) => {
    const { url: path = '', method, headers } = from
    seen.push(path)
    const body = Buffer.concat(await from.toArray())
    const status = path.startsWith(`${under}/`) ? refuse(path, body.length) : 404
    if (status !== null) return answer.writeHead(status, { 'content-type': 'text/html' }).end('<h1>No</h1>')
    const on = request(new URL(path.slice(under.length), to), { method, headers }, (far) => {
      answer.writeHead(far.statusCode ?? 500, far.headers)
      far.pipe(answer)
    })
    on.on('error', () => answer.destroy())
    answer.on('close', () => on.destroy())
    return on.end(body)
  }
  const server = createServer((from, answer) => void pass(from, answer).catch(() => answer.destroy()))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${under}`,
    seen,
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}
