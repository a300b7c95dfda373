/**
 * Work against one connection. Statements that are sent ahead share a round trip with the next. The first that fails
 * is what the work fails with; those behind it only say that the transaction is over.
 */
import type { Writable } from 'node:stream'
import type pg from 'pg'
import type { Clock, Timer } from '../../core/clock.ts'
import { SystemClock } from '../../core/system-clock.ts'
import type { Statement, Ticket, Work } from '../statement.ts'
import type { Fence } from '../store.ts'
import { StoreError } from '../store-error.ts'
import { ANSWER_WITHIN_MS } from './connection.ts'

/** Plans by index alone, whatever the statistics say; every wait has a bound. */
const SETTINGS = Object.entries({
  lock_timeout: '5s',
  statement_timeout: '30s',
  idle_in_transaction_session_timeout: '5s',
  jit: 'off',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
})
  .map(([name, value]) => `set_config('${name}', '${value}', true)`)
  .join(', ')

/** Whatever clock the engine has: the server goes by no other. */
const MACHINE_TIME = new SystemClock()

/** Of two transactions of a lane the second begins when the first has ended; a batch is a number of the lane's. */
export interface Mark {
  lane: string
  batch: number
  /** A lane that no transaction comes in any more. */
  insteadOf: string | null
}

export class Conversation {
  readonly #client: pg.ClientBase
  readonly #clock: Clock
  readonly #sent = new Map<Ticket, Promise<void>>()
  readonly #stream: Writable | null
  #failed: { error: unknown } | null = null
  #unanswered = 0
  #silence: Timer | null = null

  constructor(client: pg.ClientBase, clock: Clock = MACHINE_TIME) {
    this.#client = client
    this.#clock = clock
    this.#stream = (client as unknown as { connection?: { stream?: Writable } }).connection?.stream ?? null
  }

  /** Leaves its mark for when the answer to the commit is lost; rejects when this process may not decide. */
  begin(fence: Fence | null, { lane, batch, insteadOf }: Mark): Promise<void> {
    // All of it is ours (ids of our alphabet, and numbers), so it may stand in the text.
    const from = fence
      ? `from curfew.nodes where id = '${fence.nodeId}' and epoch = ${fence.epoch} and gone_at is null for key share`
      : ''
    this.#gather()
    const mark = `insert into curfew.lanes values ('${lane}', ${batch}, extract(epoch from now()) * 1000)
      on conflict (id) do update set batch = excluded.batch, at = excluded.at`
    const old = insteadOf === null ? '' : `, old as (delete from curfew.lanes where id = '${insteadOf}')`
    const text = `begin; with mark as (${mark})${old} select ${SETTINGS} ${from}`
    // At once: what was sent behind it is answered in the same breath, and only says that the transaction is over.
    const refuse = (error: unknown): never => {
      this.#fail(error)
      throw error
    }
    const begun = this.#send(text).then((results) => {
      if ((results as unknown as pg.QueryResult[]).at(-1)?.rows.length === 1) return
      const message = `process ${fence?.nodeId} was declared gone: its lease is somebody else's`
      refuse(new StoreError('not_leading', message))
    }, refuse)
    begun.catch((error: unknown) => this.#fail(error))
    return begun
  }

  /** Whether the transaction with that mark was committed. Waits for it to be over, however it ends. */
  async wasCommitted({ lane, batch }: Mark): Promise<boolean> {
    await this.#send(`begin; select ${SETTINGS}`)
    // A write, because only that also waits for a row which nobody can see yet.
    const { rows } = await this.#send({
      text: `insert into curfew.lanes values ($1, 0, 0) on conflict (id) do update set batch = lanes.batch returning batch`,
      values: [lane],
    })
    await this.rollBack()
    return rows[0].batch === batch
  }

  /** Whatever is read behind it sees the same moment. */
  beginSnapshot(): void {
    this.#gather()
    const text = `begin transaction isolation level repeatable read, read only; select ${SETTINGS}`
    this.#send(text).catch((error: unknown) => this.#fail(error))
  }

  async drive<T>(work: Work<T>): Promise<T> {
    let step = work.next()
    while (!step.done) {
      const request = step.value
      if ('start' in request) {
        this.#start(request.start, request.ticket)
        step = work.next([])
      } else if ('wait' in request) {
        await (request.wait === 'all' ? this.#allAnswered() : this.#sent.get(request.wait))
        this.#refuseIfFailed()
        step = work.next([])
      } else step = work.next(await this.#query(request))
    }
    return step.value
  }

  /** Whatever was sent ahead is answered before it. */
  async commit(): Promise<void> {
    this.#refuseIfFailed()
    const { command } = await this.#send('commit')
    // Where one of them failed, its error may be heard in the same breath, and a moment later.
    await this.#allAnswered()
    this.#refuseIfFailed()
    if (command !== 'COMMIT') throw new StoreError('store_refused', `the commit was answered with ${command}`)
  }

  async rollBack(): Promise<void> {
    await this.#send('rollback')
  }

  /** Answers come in order: with the last there are all. */
  async #allAnswered(): Promise<void> {
    await [...this.#sent.values()].at(-1)
  }

  /** What is sent before the event loop turns is one write: each of its own costs more than what it carries. */
  #gather(): void {
    const stream = this.#stream
    if (!stream) return
    stream.cork()
    process.nextTick(() => stream.uncork())
  }

  #start(statement: Statement, ticket: Ticket): void {
    this.#gather()
    const answered = this.#ask(statement).then(
      (rows) => {
        ticket.rows = rows
      },
      (error: unknown) => this.#fail(error),
    )
    this.#sent.set(ticket, answered)
  }

  async #ask({ sql, params, read, unless }: Statement): Promise<unknown[]> {
    const query = { text: sql, values: params as unknown[] }
    if (read) return (await this.#send({ ...query, rowMode: 'array' })).rows.map(read)
    const { rows, rowCount } = await this.#send(query)
    return unless && rowCount !== unless.changed ? this.#ask(unless.ask()) : rows
  }

  /**
   * The library's own promise and timeout each set a function on the query, and V8 makes such a function an old object:
   * until a full collection it keeps the query with all its rows, and every collection copies them.
   */
  #send(query: string | pg.QueryConfig | pg.QueryArrayConfig): Promise<pg.QueryResult> {
    return new Promise((resolve, reject) => {
      this.#expectAnswer()
      void this.#client.query(query as pg.QueryConfig, (error: Error | null, result: pg.QueryResult) => {
        this.#answered()
        if (error) reject(error)
        else resolve(result)
      })
    })
  }

  #expectAnswer(): void {
    if (this.#unanswered++ > 0) return
    this.#silence = this.#clock.setTimer(ANSWER_WITHIN_MS, () =>
      this.#stream?.destroy(new Error('query read timeout')),
    )
  }

  #answered(): void {
    if (--this.#unanswered > 0) return
    this.#silence?.cancel()
    this.#silence = null
  }

  async #query(statement: Statement): Promise<unknown[]> {
    try {
      const rows = await this.#ask(statement)
      this.#refuseIfFailed()
      return rows
    } catch (error) {
      this.#fail(error)
      throw this.#failed?.error
    }
  }

  #fail(error: unknown): void {
    this.#failed ??= { error }
  }

  #refuseIfFailed(): void {
    if (this.#failed) throw this.#failed.error
  }
}
