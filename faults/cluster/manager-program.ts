/** A manager that runs nothing itself. Its options are the first argument; it closes when its channel says so. */
import { Curfew } from '../../src/curfew.ts'

const { store, port } = JSON.parse(process.argv[2] ?? '{}') as { store: string; port: number }
const curfew = await Curfew.open({ store, concurrency: 0, witness: true, listen: `127.0.0.1:${port}` })

process.on('disconnect', () => process.exit(1))
process.on('message', async () => {
  await curfew.close()
  process.removeAllListeners('disconnect')
  process.disconnect()
})
process.send?.('ready')
