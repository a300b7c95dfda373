/**
 * The service port over a store that is only looked at: no engine, no lock, no row of its own. Nothing is written and
 * nothing fires; what is overdue is shown as it stands.
 */
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import type { CancelAnswer } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import { openToRead } from '../store/open-store.ts'
import type { ReadStore } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { MemberView } from '../wire/run-view.ts'
import { memberOf } from '../wire/run-view.ts'
import type {
  MetricView,
  ScheduledTask,
  ScheduleRequest,
  Settled,
  StatusView,
  SubmitRequest,
  Submitted,
  TaskService,
  WatchView,
  WorkerView,
} from '../wire/task-service.ts'
import { readTime } from './read-time.ts'
import { TaskReader } from './task-reader.ts'
import { watchStream } from './watch-stream.ts'
import { Watchers } from './watchers.ts'

/** `store`: a SQLite file that nobody works on, or `postgres://…`, whoever works on it. */
export async function openReader(
  store: string,
  { clock, logger }: { clock: Clock; logger: Logger },
): Promise<ReadOnlyTaskService> {
  const opened = await openToRead(store, clock, logger)
  try {
    return new ReadOnlyTaskService(store, { store: opened, time: await readTime(opened, clock), clock })
  } catch (error) {
    await opened.close()
    throw error
  }
}

class ReadOnlyTaskService extends TaskReader implements TaskService {
  /** Of a database it may hold a password, and is not shown. */
  readonly #location: string
  readonly #store: ReadStore
  readonly #clock: Clock

  constructor(location: string, parts: { store: ReadStore; time: StoreTime; clock: Clock }) {
    super(parts)
    this.#location = location
    this.#store = parts.store
    this.#clock = parts.clock
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  /** Nothing is waited for: here nothing would end it. */
  async settled(id: string): Promise<Settled> {
    return (await this.outcome(id)) ?? this.#refuse(`wait for ${id}`)
  }

  async memberSettled(jobId: string, id: string): Promise<MemberView> {
    const member = memberOf(jobId, id, await this.members(jobId))
    const settled =
      member.runId === null ? isEnded(member.status) : (await this.outcome(member.runId)) !== null
    return settled ? member : this.#refuse(`wait for workflow '${id}' of ${jobId}`)
  }

  /** What has happened so far. */
  async *watch(id: string, lastSequence: number, signal: AbortSignal): AsyncGenerator<WatchView> {
    const parts = {
      watchers: new Watchers(),
      clock: this.#clock,
      lookEveryMs: 0,
      record: (one: string) => this.record(one),
    }
    for await (const view of watchStream(parts, id, lastSequence, signal)) {
      yield view
      if (!view.final) this.#refuse(`follow ${id}`)
    }
  }

  async submit({ what }: SubmitRequest): Promise<Submitted> {
    return this.#refuse(`submit a ${Object.keys(what)[0]}`)
  }

  async schedule({ title, name }: ScheduleRequest): Promise<ScheduledTask[]> {
    return this.#refuse(`schedule ${title ?? name}`)
  }

  async signal(id: string): Promise<void> {
    this.#refuse(`signal ${id}`)
  }

  async cancel(id: string): Promise<CancelAnswer> {
    return this.#refuse(`cancel ${id}`)
  }

  async extend(id: string): Promise<{ deadlineAt: number | null }> {
    return this.#refuse(`extend ${id}`)
  }

  async resume(id: string): Promise<void> {
    this.#refuse(`resume ${id}`)
  }

  async cancelMember(jobId: string, id: string): Promise<CancelAnswer> {
    return this.#refuse(`cancel workflow '${id}' of ${jobId}`)
  }

  async discardDeadLetters({ jobId }: { jobId: string }): Promise<number> {
    return this.#refuse(`discard dead letters of ${jobId}`)
  }

  async claimDeadLetters({ jobId }: { jobId: string }): Promise<number> {
    return this.#refuse(`retry dead letters of ${jobId}`)
  }

  async workers(): Promise<WorkerView[]> {
    return this.#refuse('list workers')
  }

  async serverStatus(): Promise<StatusView> {
    return this.#refuse('tell the status of a manager')
  }

  async metrics(): Promise<MetricView[]> {
    return this.#refuse('tell metrics')
  }

  #refuse(what: string): never {
    if (this.#store.dialect === 'postgres') {
      throw new CurfewError('read_only', `cannot ${what}: the database is only read here`, {
        hint: 'Connect to a manager that works on it.',
      })
    }
    const file = this.#location
    throw new CurfewError('read_only', `cannot ${what}: nobody works on ${file}`, {
      hint: `Start a process that does: curfew manager --store ${file}, curfew dev, or a program with Curfew.open.`,
      fields: { file },
    })
  }
}
