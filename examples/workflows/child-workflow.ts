// A workflow as a node of another one, with a limit for this call: node examples/workflows/child-workflow.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, task, workflow } from '../../src/curfew.ts'

const translate = task({
  name: 'translate',
  run: async ({ text, to }: { text: string; to: string }, { signal }) => {
    // French hangs.
    await sleep(to === 'fr' ? 60_000 : 50, undefined, { signal })
    return `${text} in ${to}`
  },
})

const proofread = task({ name: 'proofread', run: async ({ text }: { text: string }) => `${text}, proofread` })

export const localize = workflow({
  name: 'localize',
  timeout: '10m',
  actions: { translate, proofread },
  nodes: [
    { id: 'translate', actionId: 'translate', output: { 'state.text': 'result' } },
    { id: 'proofread', actionId: 'proofread', input: { text: 'state.text' } },
  ],
  transitions: [{ from: 'translate', to: 'proofread' }],
})

export const publish = workflow({
  name: 'publish',
  actions: { localize },
  nodes: [
    { id: 'start' },
    // The node's timeout wins over the one of the child's definition.
    {
      id: 'localize',
      actionId: 'localize',
      timeout: '1s',
      input: { text: 'input.text', to: 'branch.language' },
    },
    { id: 'done', output: { 'output.texts': 'state.texts', 'output.missing': 'join.missing' } },
  ],
  transitions: [
    {
      id: 'languages',
      from: 'start',
      to: 'localize',
      foreach: { collection: 'input.languages', itemVar: 'language' },
    },
    {
      from: 'localize',
      to: 'done',
      synchronization: {
        strategy: 'all',
        siblingGroup: 'languages',
        onBranchFailure: 'settle',
        merge: { target: 'state.texts' },
      },
    },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [publish] })
  const run = await curfew.start(publish, { text: 'a poem', languages: ['en', 'fr', 'sw'] })
  console.log(await run.result())
  for (const { id, name, status, timeoutKind } of (await curfew.list({ parent: run.id })).tasks.reverse()) {
    const { state, tokens } = await curfew.workflow(id).run()
    const nodes = tokens.map(({ node, status }) => `${node} ${status}`).join(', ')
    console.log(
      `${name}: ${status}${timeoutKind ? ` (${timeoutKind})` : ''}; ${nodes}; ${JSON.stringify(state)}`,
    )
  }
  await curfew.close()
}
