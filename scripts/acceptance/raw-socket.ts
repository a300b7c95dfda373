// Bytes as somebody sends them who does not care for the protocol.

import { once } from 'node:events'
import type { Socket } from 'node:net'
import { connect } from 'node:net'
import type { WireWorld } from './wire-world.ts'
import { until } from './wire-world.ts'

export class RawSocket {
  readonly socket: Socket
  /** Everything that came back. */
  heard = ''
  closed = false

  private constructor(socket: Socket) {
    this.socket = socket
    socket.on('data', (bytes) => {
      this.heard += bytes.toString('latin1')
    })
    socket.on('error', () => socket.destroy())
    socket.on('close', () => {
      this.closed = true
    })
  }

  static async open(wire: WireWorld, url: string): Promise<RawSocket> {
    const { hostname, port } = new URL(url)
    const raw = new RawSocket(connect(Number(port), hostname))
    wire.atEnd(async () => raw.socket.destroy())
    await once(raw.socket, 'connect')
    return raw
  }

  write(bytes: string | Uint8Array): void {
    if (!this.socket.destroyed) this.socket.write(bytes)
  }

  /** The status of the first answer; 0 when the connection was closed without one. */
  status(): Promise<number> {
    return until(() => {
      const match = /^HTTP\/1\.1 (\d{3})/.exec(this.heard)
      return match ? Number(match[1]) : this.closed ? 0 : null
    }) as Promise<number>
  }
}

/** A request by hand; `length`: what it says its body has. */
export function rawRequest(
  path: string,
  body: string | Uint8Array = '{}',
  { type = 'application/json', method = 'POST', length = body.length, more = '' } = {},
): Uint8Array {
  const head = `${method} ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: ${type}\r\n${more}content-length: ${length}\r\n\r\n`
  return Buffer.concat([Buffer.from(head, 'latin1'), Buffer.from(body as string)])
}
