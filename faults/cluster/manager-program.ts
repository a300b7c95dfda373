/** A manager that runs nothing itself. Its options are the first argument; it opens and closes when it is told. */
import { Curfew } from '../../src/curfew.ts'
import { obey } from './obey.ts'

const { store, port } = JSON.parse(process.argv[2] ?? '{}') as { store: string; port: number }

obey(() => Curfew.open({ store, concurrency: 0, witness: true, listen: `127.0.0.1:${port}` }))
