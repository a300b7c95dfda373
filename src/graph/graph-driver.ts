/**
 * Between a graph run and whoever carries it out: happenings go in one at a time, commands come out in one order.
 * The agent that runs a graph and whoever rebuilds a run from its journal both use it, so both count the same steps.
 */
import type { GraphRun } from './graph-run.ts'
import type { GraphCommand, GraphHappening } from './graph-types.ts'

export interface GraphPort {
  run(command: Extract<GraphCommand, { type: 'run' }>): void
  timer(timer: number, ms: number): void
  clear(timer: number): void
  stop(token: number): void
  record(event: Extract<GraphCommand, { type: 'record' }>['event']): void
}

export class GraphDriver {
  readonly run: GraphRun
  readonly #port: GraphPort

  constructor(run: GraphRun, port: GraphPort) {
    this.run = run
    this.#port = port
  }

  start(): void {
    this.#perform(this.run.start())
  }

  happen(happening: GraphHappening): void {
    this.#perform(this.run.happen(happening))
  }

  #perform(commands: readonly GraphCommand[]): void {
    for (const command of commands) {
      if (command.type === 'record') this.#port.record(command.event)
      // What is open at its end stops with the run.
      else if (this.run.end) continue
      else if (command.type === 'run') this.#port.run(command)
      else if (command.type === 'timer') this.#port.timer(command.timer, command.ms)
      else if (command.type === 'clear') this.#port.clear(command.timer)
      else this.#port.stop(command.token)
    }
  }
}
