/** Where an engine listens: the addresses it was given, and over a SQLite file a socket that only its user can open. */

import { createHash } from 'node:crypto'
import { existsSync, lstatSync, mkdirSync, realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Clock, Timer } from './core/clock.ts'
import { CurfewError } from './core/errors.ts'
import { checkKnown } from './core/known-options.ts'
import { MAX_SOCKET_PATH_BYTES } from './core/limits.ts'
import type { Logger } from './core/logger.ts'
import type { Engine } from './manager/engine.ts'
import { checkCertificates } from './wire/certificates.ts'
import type { HttpServer, TlsOptions } from './wire/http-server.ts'
import { checkListen, parseListen } from './wire/listen-rules.ts'
import type { TokenEntry } from './wire/tokens.ts'
import { readTokens } from './wire/tokens.ts'

export interface ListenOptions {
  /** `127.0.0.1:4242`, `[::1]:4242` or `unix:/path`; port 0: any that is free. */
  address: string
  /** Who may call: `ROLE:sha256:HEX`, see `createToken`. Needed on every address but loopback and Unix sockets. */
  tokens?: readonly (string | TokenEntry)[]
  tls?: TlsOptions
  /** Other names that callers may know it by. */
  hosts?: readonly string[]
}

/** What was asked for, checked before anything is opened. */
export function checkListening(listen: unknown): ListenOptions[] {
  if (listen === undefined || listen === false) return []
  const all = (Array.isArray(listen) ? listen : [listen]) as (string | ListenOptions)[]
  return all.map((one) => {
    const options = typeof one === 'string' ? { address: one } : one
    if (typeof options?.address !== 'string') {
      throw new CurfewError(
        'invalid_option',
        'listen must be false, an address, or { address, tokens, tls, hosts }',
      )
    }
    checkKnown('listen', options, ['address', 'tokens', 'tls', 'hosts'])
    const { address, tokens, tls } = options
    checkListen({ address: parseListen(address), tokens: readTokens(tokens ?? []), tls })
    checkCertificates(tls, ['cert', 'clientCa'])
    return options
  })
}

/**
 * The socket of a SQLite store, beside it where its path is short enough. Also for whoever came over a link: workers
 * look for the next that has the store where the last one was.
 */
export function socketOf(file: string): string {
  const beside = `${existsSync(file) ? realpathSync(file) : path.resolve(file)}.sock`
  if (Buffer.byteLength(beside) <= MAX_SOCKET_PATH_BYTES) return beside
  const folder = path.join(tmpdir(), `curfew-${process.getuid?.() ?? 'user'}`)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const { uid, mode } = lstatSync(folder)
  // Whoever owns the folder could put a socket of their own there.
  if (!lstatSync(folder).isDirectory() || uid !== process.getuid?.() || (mode & 0o077) !== 0) {
    throw new CurfewError('cannot_listen', `${folder} is not a folder of this user alone`, {
      hint: 'Remove it, or put the store where its path is shorter.',
    })
  }
  return path.join(folder, `${createHash('sha256').update(beside).digest('hex').slice(0, 16)}.sock`)
}

export class Listening {
  readonly #servers: HttpServer[] = []
  readonly #engine: Engine
  #timer: Timer | null = null
  #starting: Promise<void> | null = null

  constructor(engine: Engine) {
    this.#engine = engine
  }

  get addresses(): string[] {
    return this.#servers.map(({ url }) => url)
  }

  /** Whoever does not listen need not load what it takes. */
  async start(listen: readonly ListenOptions[]): Promise<void> {
    if (listen.length === 0) return
    const { serve } = await import('./manager/serve.ts')
    for (const { address, tokens, tls, hosts } of listen) {
      const options = { address: parseListen(address), tokens: readTokens(tokens ?? []), tls, hosts }
      this.#servers.push(await serve(this.#engine, options))
    }
  }

  /** The socket of a store; where it cannot be had the engine works without. */
  async startSocket(socket: string, logger: Logger): Promise<void> {
    try {
      const { serve } = await import('./manager/serve.ts')
      this.#servers.push(await serve(this.#engine, { address: { type: 'unix', path: socket } }))
      this.#engine.setSocket(socket)
    } catch (error) {
      logger.warn(
        { socket, error: (error as Error).message },
        'no socket for other processes; this one works',
      )
    }
  }

  startSocketAfter(ms: number, socket: string, clock: Clock, logger: Logger): void {
    this.#timer = clock.setTimer(ms, () => {
      this.#starting = this.startSocket(socket, logger)
    })
  }

  async close(): Promise<void> {
    this.#timer?.cancel()
    await this.#starting
    if (this.#servers.length > 0) this.#engine.setSocket(null)
    await Promise.all(this.#servers.splice(0).map((server) => server.close()))
  }
}
