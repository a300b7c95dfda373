// Random graphs for as long as one likes: npm run properties -- --seconds 600
// One that failed is repeated with the seed and the path it told: --seed=-123 --path=4:1:0 --file=src/… --test='name'

import { spawnSync } from 'node:child_process'
import { parseArgs } from 'node:util'

const FILES = ['src/graph/graph-properties.test.ts', 'src/workflow-properties.test.ts']

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '600' },
    seed: { type: 'string' },
    path: { type: 'string' },
    file: { type: 'string', multiple: true, default: FILES },
    test: { type: 'string' },
  },
})
const { seconds, seed, path, file, test } = values
if (!(Number(seconds) > 0)) throw new Error(`--seconds must be a number above 0, got ${seconds}`)
const { status } = spawnSync(
  'npx',
  ['vitest', 'run', '--no-file-parallelism', ...file, ...(test === undefined ? [] : ['-t', test])],
  {
    stdio: 'inherit',
    env: {
      ...process.env,
      CURFEW_GRAPH_SECONDS: seconds,
      ...(seed !== undefined && { CURFEW_GRAPH_SEED: seed }),
      ...(path !== undefined && { CURFEW_GRAPH_PATH: path }),
    },
  },
)
process.exitCode = status ?? 1
