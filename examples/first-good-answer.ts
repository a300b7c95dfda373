// Ask three providers at once, take the first good answer and stop the others: node examples/first-good-answer.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { AllTasksFailed, agent, Curfew, task } from '../src/curfew.ts'

const providers = ['north', 'east', 'south']

export const askProvider = task({
  name: 'ask-provider',
  timeout: '20s',
  run: async (input: { provider: string; question: string }, { signal }) => {
    return callProvider(input.provider, input.question, signal)
  },
})

export const firstGoodAnswer = agent({
  name: 'first-good-answer',
  timeout: '1m',
  run: async (question: string, ctx) => {
    const asked = providers.map((provider) => ctx.schedule(askProvider, { provider, question }))
    try {
      // The first that completes wins; one that fails does not end the wait. The rest are cancelled.
      const { index, value } = await ctx.any(asked, { cancelRest: true })
      return { provider: providers[index], answer: value }
    } catch (error) {
      if (!(error instanceof AllTasksFailed)) throw error
      ctx.log.info({ errors: error.errors.map(({ message }) => message) }, 'nobody has an answer')
      return { provider: null, answer: null }
    }
  },
})

/** Stands for a service you would reach with `fetch(url, { signal })`. */
async function callProvider(provider: string, question: string, signal: AbortSignal): Promise<string> {
  const delays: Record<string, number> = { north: 200, east: 60_000, south: 700 }
  await sleep(delays[provider], undefined, { signal })
  if (provider === 'north') throw new Error('north is overloaded')
  return `${question} 42.`
}

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', tasks: [askProvider], agents: [firstGoodAnswer] })
  const run = await curfew.start(firstGoodAnswer, 'What is six times seven?')
  const { provider, answer } = await run.result()
  console.log(`${provider} says: ${answer}`)

  // What became of each. An agent's result is told when nothing below it runs any more.
  const { tasks } = await curfew.list({ parent: run.id })
  for (const { id } of tasks.reverse()) console.log((await curfew.task(id).explain()).summary)
  console.log((await run.explain()).summary)
  await curfew.close()
}
