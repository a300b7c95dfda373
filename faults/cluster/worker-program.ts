/** A worker with everything in `cluster-work.ts`. Its options are the first argument; it opens and closes when it is told. */
import { Curfew } from '../../src/curfew.ts'
import { agents, tasks, workflows } from './cluster-work.ts'
import { obey } from './obey.ts'

// For the handlers in processes of their own.
process.env.FAULTS_OWNER = String(process.pid)

const options = JSON.parse(process.argv[2] ?? '{}') as { managers: string[]; concurrency: number }

obey(async () => {
  const worker = await Curfew.work({ ...options, tasks, agents, workflows, witness: true })
  await worker.attached()
  return worker
})
