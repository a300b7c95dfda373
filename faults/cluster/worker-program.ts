/** A worker with everything in `cluster-work.ts`. Its options are the first argument; it closes when its channel says so. */
import { Curfew } from '../../src/curfew.ts'
import { agents, tasks, workflows } from './cluster-work.ts'

export interface WorkerOptions {
  managers: string[]
  concurrency: number
  labels?: Record<string, string>
}

// For the handlers in processes of their own.
process.env.FAULTS_OWNER = String(process.pid)

const options = JSON.parse(process.argv[2] ?? '{}') as WorkerOptions
const worker = await Curfew.work({ ...options, tasks, agents, workflows, witness: true })

process.on('disconnect', () => process.exit(1))
process.on('message', async () => {
  await worker.close()
  process.removeAllListeners('disconnect')
  process.disconnect()
})
await worker.attached()
process.send?.('ready')
