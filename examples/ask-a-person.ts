// Ask a person, remind every day, give up after a week: node examples/ask-a-person.ts
// It waits in the store, not in the process: here the engine is closed and opened again meanwhile.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Duration } from '../src/curfew.ts'
import { agent, Curfew, task, WaitTimedOut } from '../src/curfew.ts'

interface Decision {
  approved: boolean
  by: string
}

export const sendMail = task({
  name: 'send-mail',
  timeout: '1h',
  retries: 5,
  run: async (mail: { to: string; text: string }) => console.log(`  mail to ${mail.to}: ${mail.text}`),
})

export const askApproval = agent({
  name: 'ask-approval',
  run: async (input: { to: string; question: string; day: Duration }, ctx) => {
    const { to, question, day } = input
    await ctx.schedule(sendMail, { to, text: question })
    for (let days = 1; days <= 7; days++) {
      try {
        const decision = await ctx.waitForSignal<Decision>('decision', { timeout: day })
        return { ...decision, days }
      } catch (error) {
        if (!(error instanceof WaitTimedOut)) throw error
        if (days < 7) await ctx.schedule(sendMail, { to, text: `${question} (reminder ${days})` })
      }
    }
    await ctx.schedule(sendMail, { to, text: 'Never mind.' })
    return { approved: false, by: 'nobody', days: 7 }
  },
})

if (import.meta.main) {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-ask-'))
  const options = { store: path.join(folder, 'agents.db'), tasks: [sendMail], agents: [askApproval] }
  try {
    const first = await Curfew.open(options)
    const question = { to: 'ada@example.org', question: 'May we deploy?', day: '1s' }
    const { id } = await first.start(askApproval, question, { key: 'deploy-7' })
    await sleep(1_300)
    console.log((await first.agent(id).explain()).summary)
    await first.close()
    console.log('closed, and opened again')

    const second = await Curfew.open(options)
    const run = await second.start(askApproval, question, { key: 'deploy-7' }) // the same one, by its key
    console.log(`asked again: ${run.existing ? 'it is there already' : 'it is new'}`)
    // What a web page would do when the person has clicked.
    await run.signal('decision', { approved: true, by: 'ada' } satisfies Decision)
    console.log('decision:', await run.result())

    const ignored = await second.start(askApproval, { ...question, to: 'bob@example.org', day: '200ms' })
    console.log('decision:', await ignored.result())
    await second.close()
  } finally {
    await rm(folder, { recursive: true })
  }
}
