/** Work that the commands of a batch may bring, so that it can be claimed with them. */
import { isOwnRun } from '../core/own-work.ts'

/** What a batch may bring: how many tasks of which names, and how many turns of Curfew's own agents and of others. */
export interface ExpectedWork {
  tasks: number
  names: string[]
  ownTurns: number
  turns: number
}

export function expectTasks(expected: ExpectedWork, name: string, count: number): void {
  expected.tasks += count
  if (!expected.names.includes(name)) expected.names.push(name)
}

export function expectTurn(expected: ExpectedWork, agentId: string | undefined): void {
  if (agentId !== undefined && isOwnRun(agentId)) expected.ownTurns++
  else expected.turns++
}
