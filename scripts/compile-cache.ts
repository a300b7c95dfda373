// What Node compiles for one process of the tests serves all of them, and goes with the run.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'

export default async function setUp(): Promise<() => Promise<void>> {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-compiled-'))
  process.env.NODE_COMPILE_CACHE = folder
  return () => rm(folder, { recursive: true, force: true, maxRetries: 3 })
}
