// Draft, review, draft again, three times at most: node examples/workflows/loop.ts

import { Curfew, task, workflow } from '../../src/curfew.ts'

const writeDraft = task({
  name: 'write-draft',
  run: async ({ drafts }: { drafts: number }) => ({
    drafts: drafts + 1,
    text: 'tea '.repeat(drafts + 1).trim(),
  }),
})

const rateDraft = task({
  name: 'rate-draft',
  run: async ({ text }: { text: string }) => ({ words: text.split(' ').length }),
})

export const improve = workflow({
  name: 'improve',
  actions: {
    writeDraft,
    rateDraft,
    begin: { kind: 'update_context', updates: { 'state.drafts': 0 } },
  },
  nodes: [
    { id: 'begin', actionId: 'begin' },
    { id: 'write', actionId: 'writeDraft', timeout: '5s', input: { drafts: 'state.drafts' } },
    { id: 'rate', actionId: 'rateDraft', timeout: '5s', input: { text: 'state.text' } },
    { id: 'accept', output: { 'output.text': 'state.text', 'output.verdict': "'good'" } },
    { id: 'give-up', output: { 'output.text': 'state.text', 'output.verdict': "'too short'" } },
  ],
  transitions: [
    { from: 'begin', to: 'write' },
    { from: 'write', to: 'rate' },
    { from: 'rate', to: 'accept', condition: 'state.words >= input.words' },
    // Once it has been taken so often it matches no more, and the next tier is tried.
    { from: 'rate', to: 'write', priority: 1, loop: { maxIterations: 2 } },
    { from: 'rate', to: 'give-up', priority: 2 },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [improve] })
  for (const words of [2, 9]) {
    const run = await curfew.start(improve, { words })
    console.log(await run.result(), (await run.run()).tokens.map(({ node }) => node).join(' '))
  }
  await curfew.close()
}
