/**
 * A TCP proxy between the processes of a cluster, with everything that goes wrong on a network: bytes that are lost,
 * held up or late, connections that are cut, requests that arrive twice, answers that never do. Rules are looked at
 * for every piece of bytes; a connection that has lost some stays broken in that direction until it is closed.
 */
import { once } from 'node:events'
import type { AddressInfo, Server, Socket } from 'node:net'
import { connect, createServer } from 'node:net'
import { RequestReader } from './request-reader.ts'

/** `path`: of the request that the connection carries now. */
type Rule = (path: string) => boolean

interface Rules {
  /** Lost, without anybody being told. */
  loseUp: Rule
  loseDown: Rule
  /** The request is lost, and its connection is cut. */
  cutUp: Rule
  /** Kept until it is let through, in both directions. */
  hold: boolean
  /** New connections are refused. */
  refuse: boolean
  /** How late every piece of bytes is, in milliseconds. */
  delay: (() => number) | null
  /** The request arrives a second time, over another connection. */
  duplicate: Rule
  /** The request arrives; then the connection is cut instead of its answer. */
  loseAnswer: Rule
}

const NEVER: Rule = () => false

const NO_RULES: Rules = {
  loseUp: NEVER,
  loseDown: NEVER,
  cutUp: NEVER,
  hold: false,
  refuse: false,
  delay: null,
  duplicate: NEVER,
  loseAnswer: NEVER,
}

export class FaultyProxy {
  /** Requests that were sent twice, and answers that were lost, by their path. */
  readonly done: { duplicated: string[]; lost: string[] } = { duplicated: [], lost: [] }
  readonly #targetPort: number
  readonly #server: Server
  readonly #connections = new Set<Connection>()
  readonly #copies = new Set<Socket>()
  #rules = NO_RULES

  static async start(targetPort: number): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(targetPort)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  private constructor(targetPort: number) {
    this.#targetPort = targetPort
    this.#server = createServer({ noDelay: true }, (socket) => this.#accept(socket))
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** From now on these rules hold, and no others. */
  setRules(rules: Partial<Rules>): void {
    this.#rules = { ...NO_RULES, ...rules }
    for (const connection of this.#connections) connection.letThrough()
  }

  /** Ends every connection at once. */
  cut(): void {
    for (const connection of this.#connections) connection.end()
  }

  async close(): Promise<void> {
    this.cut()
    for (const copy of this.#copies) copy.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #accept(socket: Socket): void {
    if (this.#rules.refuse) return void socket.resetAndDestroy()
    const target = connect({ port: this.#targetPort, host: '127.0.0.1', noDelay: true })
    const connection = new Connection(socket, target, {
      rules: () => this.#rules,
      duplicate: (path, request) => this.#sendCopy(path, request),
      lost: (path) => this.done.lost.push(path),
      ended: () => this.#connections.delete(connection),
    })
    this.#connections.add(connection)
  }

  #sendCopy(path: string, request: Buffer): void {
    this.done.duplicated.push(path)
    const copy = connect({ port: this.#targetPort, host: '127.0.0.1' })
    this.#copies.add(copy)
    copy.on('error', () => copy.destroy())
    copy.on('close', () => this.#copies.delete(copy))
    copy.on('data', () => copy.end()) // it was answered; what with nobody sees
    copy.write(request)
  }
}

interface Hooks {
  rules(): Rules
  duplicate(path: string, request: Buffer): void
  lost(path: string): void
  ended(): void
}

interface Piece {
  to: Socket
  bytes: Buffer
  dueAt: number
}

class Connection {
  readonly #up: Socket
  readonly #down: Socket
  readonly #hooks: Hooks
  readonly #reader = new RequestReader()
  /** On their way, in order, by direction. */
  readonly #pieces: { up: Piece[]; down: Piece[] } = { up: [], down: [] }
  readonly #broken = { up: false, down: false }
  #path = ''
  #answerLost = false

  constructor(client: Socket, target: Socket, hooks: Hooks) {
    this.#down = client
    this.#up = target
    this.#hooks = hooks
    client.on('data', (bytes: Buffer) => this.#fromClient(bytes))
    target.on('data', (bytes: Buffer) => this.#fromTarget(bytes))
    for (const socket of [client, target]) {
      socket.on('error', () => this.end())
      socket.on('close', () => this.end())
    }
  }

  end(): void {
    this.#hooks.ended()
    for (const pieces of Object.values(this.#pieces)) pieces.length = 0
    for (const socket of [this.#up, this.#down]) if (!socket.destroyed) socket.resetAndDestroy()
  }

  letThrough(): void {
    this.#pump('up')
    this.#pump('down')
  }

  #fromClient(bytes: Buffer): void {
    const rules = this.#hooks.rules()
    for (const { path, raw } of this.#reader.read(bytes)) {
      if (raw === null) {
        this.#path = path
        if (rules.cutUp(path)) return this.end()
      } else {
        if (rules.duplicate(path)) this.#hooks.duplicate(path, raw)
        this.#answerLost = rules.loseAnswer(path)
      }
    }
    if (rules.loseUp(this.#path)) this.#broken.up = true
    this.#send('up', this.#up, bytes)
  }

  #fromTarget(bytes: Buffer): void {
    if (this.#answerLost) {
      this.#hooks.lost(this.#path)
      return this.end()
    }
    if (this.#hooks.rules().loseDown(this.#path)) this.#broken.down = true
    this.#send('down', this.#down, bytes)
  }

  #send(way: 'up' | 'down', to: Socket, bytes: Buffer): void {
    if (this.#broken[way]) return
    const { delay } = this.#hooks.rules()
    this.#pieces[way].push({ to, bytes, dueAt: performance.now() + (delay?.() ?? 0) })
    this.#pump(way)
  }

  #pump(way: 'up' | 'down'): void {
    const pieces = this.#pieces[way]
    while (pieces[0] && !this.#hooks.rules().hold) {
      const leftMs = pieces[0].dueAt - performance.now()
      if (leftMs > 0) return void setTimeout(() => this.#pump(way), leftMs).unref()
      const { to, bytes } = pieces.shift() as Piece
      if (!to.destroyed) to.write(bytes)
    }
  }
}
