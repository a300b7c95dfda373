// A node that takes too long is stopped and tried again: node examples/workflows/retry-on-timeout.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task, workflow } from '../../src/curfew.ts'

let calls = 0

const askModel = task({
  name: 'ask-model',
  kind: 'llm', // the validator knows what limit to advise for it
  run: async ({ question }: { question: string }, { signal }) => {
    // It hangs twice. Its signal ends the wait when the limit is over.
    if (++calls <= 2) await sleep(60_000, undefined, { signal })
    return `${question} 42.`
  },
})

export const answer = workflow({
  name: 'answer',
  timeout: '1m',
  actions: { askModel },
  nodes: [
    // Two minutes in earnest; nobody wants to wait for an example.
    { id: 'ask', actionId: 'askModel', timeout: '300ms', onTimeout: 'retry', retryLimit: 2 },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [answer] })
  const run = await curfew.start(answer, { question: 'What is six times seven?' })
  console.log(await run.result())

  // One event per attempt that timed out, with what was done about it.
  for (const { type, nodeId, attempt, timeoutType, timeoutDurationMs, policyApplied } of await run.events()) {
    if (type !== 'token_timed_out') continue
    console.log(
      `${nodeId}, attempt ${attempt}: ${timeoutType} limit of ${timeoutDurationMs} ms, ${policyApplied}`,
    )
  }
  await curfew.close()
}
