// Another process of a benchmark, which does what this one asks. It ends with the one that started it.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

export interface Usage {
  /** Of the processor, since the process started. */
  cpuMs: number
  rssMb: number
}

export interface Child {
  pid: number
  ask<T>(method: string, argument?: unknown): Promise<T>
  usage(): Promise<Usage>
  /** With -9; resolves when it is gone. */
  kill(): Promise<void>
}

type Methods = Record<string, (argument: never) => unknown>
type Question = { number: number; method: string; argument: unknown }
type Answer = { number: number; value?: unknown; problem?: string }

/** `script` calls `answerParent`; resolves when it has. */
export async function startChild(script: URL, options: { execArgv?: string[] } = {}): Promise<Child> {
  const child = fork(fileURLToPath(script), [], {
    execArgv: ['--no-deprecation', ...(options.execArgv ?? [])],
  })
  const waiting = new Map<number, PromiseWithResolvers<unknown>>()
  let asked = 0
  let killed = false
  child.on('message', ({ number, value, problem }: Answer) => {
    if (problem === undefined) waiting.get(number)?.resolve(value)
    else waiting.get(number)?.reject(new Error(problem))
    waiting.delete(number)
  })
  const exit = once(child, 'exit')
  void exit.then(([code, signal]) => {
    for (const { reject } of waiting.values()) reject(new Error('the process that was asked has ended'))
    if (killed) return
    console.error(`a process of the benchmark ended with ${signal ?? code}`)
    process.exit(1)
  })
  const ask = <T>(method: string, argument?: unknown) => {
    const answer = Promise.withResolvers<unknown>()
    const question: Question = { number: ++asked, method, argument }
    waiting.set(question.number, answer)
    child.send(question)
    return answer.promise as Promise<T>
  }
  await ask('usage')
  return {
    pid: child.pid!,
    ask,
    usage: () => ask<Usage>('usage'),
    kill: async () => {
      killed = true
      child.kill('SIGKILL')
      await exit
    },
  }
}

/** In the process that was started. */
export function answerParent(methods: Methods): void {
  const all: Methods = { ...methods, usage: ownUsage }
  process.on('message', async ({ number, method, argument }: Question) => {
    const send = (answer: Answer) => process.send!(answer)
    try {
      send({ number, value: await all[method]!(argument as never) })
    } catch (error) {
      send({ number, problem: error instanceof Error ? (error.stack ?? error.message) : String(error) })
    }
  })
  process.on('disconnect', () => process.exit())
}

function ownUsage(): Usage {
  const { user, system } = process.cpuUsage()
  return { cpuMs: (user + system) / 1000, rssMb: process.memoryUsage().rss / 2 ** 20 }
}

/** Milliseconds of a clock that all processes of a machine share. */
export function sharedNow(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
