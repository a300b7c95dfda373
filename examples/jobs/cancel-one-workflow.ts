// Cancel one workflow of a job, with those that wait for it; the others go on:
// node examples/jobs/cancel-one-workflow.ts

import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, job, TaskCancelled, task } from '../../src/curfew.ts'

const render = task({
  name: 'render',
  timeout: '1m',
  run: async ({ film, seconds }: { film: string; seconds: number }, { signal }) => {
    await sleep(seconds * 1_000, undefined, { signal })
    return `${film} is rendered`
  },
})

const upload = task({ name: 'upload', run: async ({ film }: { film: string }) => `${film} is uploaded` })

export const films = job({
  name: 'films',
  workflows: [
    { id: 'render-long', task: render, input: { film: 'long', seconds: 60 } },
    { id: 'upload-long', task: upload, input: { film: 'long' }, dependsOn: 'render-long' },
    { id: 'render-short', task: render, input: { film: 'short', seconds: 0.5 } },
    { id: 'upload-short', task: upload, input: { film: 'short' }, dependsOn: 'render-short' },
  ],
})

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', tasks: [render, upload] })
  const handle = await curfew.submit(films)
  const long = handle.workflow('render-long')
  while ((await long.view()).status === 'pending') await sleep(10)

  // The answer is immediate: nothing of it will be started any more.
  console.log(await long.cancel({ requestId: 'too-expensive' }))
  // The completion comes when everything of it has really stopped, with a ledger of every attempt.
  const { success, errors, ledger } = await long.cancelled({ timeout: '10s' })
  console.log(
    { success, errors },
    ledger.map(({ name, receipt }) => `${name}: ${receipt}`),
  )

  try {
    await handle.result()
  } catch (error) {
    if (!(error instanceof TaskCancelled)) throw error
    console.log('the job is cancelled: that is how the first ended that did not complete')
  }
  for (const { id, status, output } of await handle.workflows()) console.log(`  ${id}: ${status}, ${output}`)
  await curfew.close()
}
