// Between a client and a manager: connections that can be cut, held back and refused.

import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { connect, createServer } from 'node:net'

export interface TcpProxy {
  url: string
  /** Connections taken so far. */
  readonly connections: number
  /** Ends every connection there is, without a word. */
  cut(): void
  /** So many answers are not let through: their connections are cut instead. */
  cutAnswers(count: number): void
  /** So much of what the manager says gets through in a second, on each connection. */
  slow(bytesPerSecond: number): void
  /** New connections are cut as they come. */
  refuse(refusing: boolean): void
  close(): Promise<void>
}

/** To the manager at this address, `http://host:port`. */
export async function tcpProxy(url: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(url)
  const open = new Set<Socket>()
  let refusing = false
  let connections = 0
  let unheard = 0
  let rate = Infinity
  const drip = async (from: Socket, to: Socket, bytes: Buffer) => {
    from.pause()
    for (let at = 0; at < bytes.length && !to.destroyed; at += rate / 10) {
      to.write(bytes.subarray(at, at + rate / 10))
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
    from.resume()
  }
  const server = createServer((near) => {
    connections++
    if (refusing) return void near.resetAndDestroy()
    const far = connect(Number(port), hostname)
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(socket)
      socket.setNoDelay(true)
      // Whoever fails takes the other one along.
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        open.delete(socket)
        other.destroy()
      })
    }
    near.pipe(far)
    far.on('data', (bytes) => {
      if (rate < Infinity) return void drip(far, near, bytes)
      if (unheard === 0) return void near.write(bytes)
      unheard--
      near.resetAndDestroy()
    })
    far.on('end', () => near.end())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = () => {
    for (const socket of open) socket.resetAndDestroy()
  }
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get connections() {
      return connections
    },
    cut,
    cutAnswers: (count) => {
      unheard = count
    },
    slow: (bytesPerSecond) => {
      rate = bytesPerSecond
    },
    refuse: (next) => {
      refusing = next
    },
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      cut()
      await closed
    },
  }
}
