import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    environment: 'node',
    pool: 'forks',
    maxWorkers: 2,
    include: ['{src,scripts,examples,sim,faults}/**/*.test.ts'],
    globalSetup: ['scripts/postgres/global-setup.ts', 'scripts/compile-cache.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
})
