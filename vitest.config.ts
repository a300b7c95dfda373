import { defineConfig } from 'vitest/config'
import { BaseSequencer } from 'vitest/node'

/** The longest tests are short files, which would come last: one of the two workers would have nothing to do. */
class LongestFirst extends BaseSequencer {
  override async sort(files: Parameters<BaseSequencer['sort']>[0]) {
    const sorted = await super.sort(files)
    const isLong = ({ moduleId }: (typeof sorted)[number]) => moduleId.includes('/faults/')
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))]
  }
}

export default defineConfig({
  test: {
    environment: 'node',
    pool: 'forks',
    maxWorkers: 2,
    include: ['{src,scripts,examples,sim,faults}/**/*.test.ts'],
    sequence: { sequencer: LongestFirst },
    globalSetup: ['scripts/postgres/global-setup.ts', 'scripts/compile-cache.ts'],
    // For what hangs: nothing on a slow machine comes near it.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})
