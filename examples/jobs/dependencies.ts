// A job: workflows that wait for each other, under one limit: node examples/jobs/dependencies.ts

import { Curfew, job, TaskFailed, task, workflow } from '../../src/curfew.ts'

const extract = task({ name: 'extract', run: async ({ table }: { table: string }) => ({ table, rows: 3 }) })

const load = task({
  name: 'load',
  run: async ({ into }: { into: string }) => {
    if (into === 'broken') throw new Error('no such database')
    return `loaded into ${into}`
  },
})

const tell = task({ name: 'tell', run: async ({ text }: { text: string }) => text })

const extractAll = workflow({
  name: 'extract-all',
  actions: { extract },
  nodes: [
    { id: 'start' },
    { id: 'extract', actionId: 'extract', timeout: '1m', input: { table: 'branch.item' } },
    { id: 'done', output: { 'output.tables': 'size(state.tables)' } },
  ],
  transitions: [
    { id: 'tables', from: 'start', to: 'extract', foreach: { collection: 'input' } },
    {
      from: 'extract',
      to: 'done',
      synchronization: { strategy: 'all', siblingGroup: 'tables', merge: { target: 'state.tables' } },
    },
  ],
})

/** `failFast`: the first that ends badly stops the others. */
export function nightly(into: string, failFast = false) {
  return job({
    name: 'nightly',
    timeout: '2h',
    failFast,
    workflows: [
      { id: 'extract', workflow: extractAll, input: ['users', 'orders'] },
      { id: 'load', task: load, input: { into }, dependsOn: 'extract' },
      { id: 'report', task: tell, input: { text: 'all is well' }, dependsOn: 'load' },
      { id: 'alarm', task: tell, input: { text: 'help!' }, dependsOn: ['extract', 'load'], runIf: 'failed' },
      { id: 'clean', task: tell, input: { text: 'swept' }, dependsOn: ['report', 'alarm'], runIf: 'always' },
    ],
  })
}

if (import.meta.main) {
  const curfew = await Curfew.open({ store: ':memory:', tasks: [load, tell], workflows: [extractAll] })
  for (const submitted of [nightly('shop'), nightly('broken'), nightly('broken', true)]) {
    const handle = await curfew.submit(submitted)
    try {
      await handle.result()
      console.log('completed')
    } catch (error) {
      if (!(error instanceof TaskFailed)) throw error
      console.log(error.failure.message)
    }
    for (const { id, status, output, failure } of await handle.workflows()) {
      console.log(`  ${id}: ${status}, ${JSON.stringify(output ?? failure?.message)}`)
    }
  }
  await curfew.close()
}
