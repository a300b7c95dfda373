// Two of three reviewers are enough; when two refuse, nobody waits for the third: node examples/workflows/quorum.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, TaskFailed, task, workflow } from '../../src/curfew.ts'

interface Review {
  reviewer: number
  refusing: number[]
}

const review = task({
  name: 'review',
  run: async ({ reviewer, refusing }: Review, { signal }) => {
    await sleep(100 * (reviewer + 1), undefined, { signal })
    if (refusing.includes(reviewer)) throw new Error(`reviewer ${reviewer} refuses`)
    return `approved by ${reviewer}`
  },
})

export const approve = workflow({
  name: 'approve',
  actions: { review },
  nodes: [
    { id: 'draft' },
    {
      id: 'review',
      actionId: 'review',
      timeout: '1h',
      input: { reviewer: 'branch.index', refusing: 'input.refusing' },
    },
    { id: 'publish', output: { 'output.approvals': 'state.approvals', 'output.asked': 'join.expected' } },
  ],
  transitions: [
    { id: 'reviewers', from: 'draft', to: 'review', spawnCount: 3 },
    {
      from: 'review',
      to: 'publish',
      synchronization: {
        strategy: { mOfN: 2 },
        siblingGroup: 'reviewers',
        merge: { target: 'state.approvals', strategy: 'keyed_by_branch' },
      },
    },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', workflows: [approve] })
  for (const refusing of [[0], [0, 1]]) {
    const run = await curfew.start(approve, { refusing })
    try {
      console.log(await run.result())
    } catch (error) {
      if (!(error instanceof TaskFailed)) throw error
      console.log(error.failure.code, error.failure.message)
    }
  }
  await curfew.close()
}
