// A workflow from a file, with tasks of this program: node examples/workflows/from-yaml.ts [file]

import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Curfew, DefinitionError, loadWorkflow, task } from '../../src/curfew.ts'

const planTopics = task({
  name: 'plan-topics',
  run: async ({ topics }: { topics: string[] }) => ({ topics }),
})

const readPage = task({
  name: 'read-page',
  run: async ({ topic }: { topic: string }, { signal }) => {
    await sleep(topic === 'fire' ? 60_000 : 50, undefined, { signal }) // this one hangs
    return `a page about ${topic}`
  },
})

const summarize = task({
  name: 'summarize',
  run: async ({ pages, missing }: { pages: string[]; missing: number }) => ({ pages, missing }),
})

/** Throws a `DefinitionError` with all problems, each with its line. */
export async function loadResearch(file = path.join(import.meta.dirname, 'research.yml')) {
  return loadWorkflow(await readFile(file, 'utf8'), { file: path.relative('.', file) })
}

if (import.meta.main) {
  try {
    const research = await loadResearch(process.argv[2])
    const curfew = await Curfew.open({
      store: ':memory:',
      tasks: [planTopics, readPage, summarize],
      workflows: [research],
    })
    const run = await curfew.start(research, { topics: ['tea', 'fire', 'cups'] })
    console.log(await run.result())
    await curfew.close()
  } catch (error) {
    if (!(error instanceof DefinitionError)) throw error
    console.error(error.message)
    process.exitCode = 2
  }
}
