// The world outside of random agents: what their tasks and effects do. It remembers over the deaths of processes, and
// takes the same time however often it is asked, so that no disturbance changes a time. It notices what must not be.

import { HandlerError } from '../../src/core/failure.ts'
import type { AgentContext, AgentDefinition, TaskContext, TaskDefinition } from '../../src/curfew.ts'
import { agent, task } from '../../src/curfew.ts'
import type { VirtualClock } from '../../src/testing/testing.ts'
import type { Probe, ProgramInput, RunNode, TaskNode } from './agent-programs.ts'
import { BACKOFF_MS, childOptions, interpret, taskOptions } from './agent-programs.ts'

/** One process. What a dead one still does was never done. */
export interface Generation {
  no: number
  alive: boolean
  clock: VirtualClock
}

/** A task or an effect. */
interface Done {
  /** When the last try ends, and its number. */
  endAt: number
  tries: number
  starts: Set<string>
  /** The agent went on with its result. */
  seen: boolean
}

type WorkInput = Pick<TaskNode, 'ms' | 'end' | 'flaky'>

export class Outside {
  readonly problems: string[] = []
  readonly #done = new Map<string, Done>()
  readonly #values = new Map<string, string>()
  /** The step of which agent a task or agent is, by its id. */
  readonly #places = new Map<string, { agentId: string; place: string }>()

  /** What one process has the code of. */
  definitions(generation: Generation): {
    work: TaskDefinition<WorkInput, string>
    program: AgentDefinition<ProgramInput>
  } {
    const work = task({
      name: 'work',
      retention: '400d',
      run: (input: WorkInput, ctx) => this.work(generation, input, ctx),
    })
    const program: AgentDefinition<ProgramInput> = agent({
      name: 'program',
      retention: '400d',
      run: (input: ProgramInput, ctx) => interpret(input, ctx, this.#probe(generation, work, program)),
    })
    return { work, program }
  }

  /** `root/.0.1`: where it stands in the programs. */
  placeOf(id: string, rootId: string): string {
    if (id === rootId) return 'root'
    const made = this.#places.get(id)
    return made ? `${this.placeOf(made.agentId, rootId)}/${made.place}` : `unknown ${id}`
  }

  /** What the code of this agent came to. */
  cameTo(agentId: string): string | undefined {
    return this.#values.get(`${agentId} !`)
  }

  #probe(
    generation: Generation,
    work: TaskDefinition<WorkInput, string>,
    program: AgentDefinition<ProgramInput>,
  ): Probe {
    const made = <H extends { id: string }>(ctx: AgentContext, place: string, handle: H): H => {
      this.#places.set(handle.id, { agentId: ctx.agentId, place })
      return handle
    }
    return {
      schedule: (ctx, place, node) => {
        const { ms, end, flaky } = node
        return made(ctx, place, ctx.schedule(work, { ms, end, flaky }, taskOptions(node)))
      },
      child: (ctx, place, node, input) => made(ctx, place, ctx.child(program, input, childOptions(node))),
      effect: (agentId, place, node, signal) =>
        this.#effect(generation, `${agentId} ${place}`, node, signal).then(() => place),
      saw: (agentId, place, value) => {
        if (generation.alive) this.#saw(`${agentId} ${place}`, value)
      },
    }
  }

  #saw(key: string, value: string): void {
    const before = this.#values.get(key)
    if (before !== undefined && before !== value) this.problems.push(`${key}: was ${before}, is now ${value}`)
    this.#values.set(key, value)
    for (const one of [key, value]) {
      const done = this.#done.get(one)
      if (done) done.seen = true
    }
  }

  async #effect(
    generation: Generation,
    key: string,
    { ms, end, flaky, timeout }: RunNode,
    signal: AbortSignal,
  ): Promise<void> {
    const pauseMs = timeout === null ? BACKOFF_MS : null
    await this.#try(generation, key, { ms, end, flaky, pauseMs, isLimited: timeout !== null }, signal)
  }

  /** What a task does; answers its id. */
  async work(
    generation: Generation,
    { ms, end, flaky }: WorkInput,
    { taskId, signal }: TaskContext,
  ): Promise<string> {
    await this.#try(generation, taskId, { ms, end, flaky, pauseMs: null, isLimited: false }, signal)
    return taskId
  }

  /**
   * `pauseMs`: between tries, where whoever asks may have forgotten that it has to wait; null: where it never does.
   * Asked again before its present try is over (or at that very moment) it goes on with that one, unless it is
   * limited and was stopped for that.
   */
  async #try(
    generation: Generation,
    key: string,
    plan: WorkInput & { pauseMs: number | null; isLimited: boolean },
    signal: AbortSignal,
  ): Promise<void> {
    const { clock } = generation
    if (!generation.alive) return until(clock, Infinity, signal)
    const now = clock.wall()
    const done = this.#done.get(key) ?? { endAt: -1, tries: 0, starts: new Set(), seen: false }
    this.#done.set(key, done)
    if (signal.aborted) this.problems.push(`${key}: was started after it had to stop`)
    if (done.seen) this.problems.push(`${key}: ran again after its result was used`)
    if (done.endAt < now) {
      const hangs = done.tries === plan.flaky && plan.end === 'hang'
      const begins = plan.pauseMs === null || done.tries === 0 ? now : done.endAt + plan.pauseMs
      done.endAt = hangs ? Infinity : begins + plan.ms
      done.tries++
    }
    const { tries } = done
    const start = `${generation.no} ${tries}`
    if (done.starts.has(start)) this.problems.push(`${key}: ran twice in one process`)
    done.starts.add(start)
    await until(clock, done.endAt, signal).finally(() => {
      if (plan.isLimited && signal.aborted) done.endAt = -1
    })
    if (tries <= plan.flaky) throw new Error('flaky')
    if (plan.end === 'fail') throw new HandlerError('broken', { code: 'broken', retryable: false })
  }
}

/** Rejects when the signal aborts. */
function until(clock: VirtualClock, at: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    if (at <= clock.wall()) return resolve()
    const timer = at === Infinity ? null : clock.setTimer(at - clock.wall(), resolve)
    signal.addEventListener('abort', () => {
      timer?.cancel()
      reject(signal.reason)
    })
  })
}
