// Who takes part, over which store, and in what.

import type { OpenSession } from './contender.ts'

export interface ContenderEntry {
  store: 'postgres' | 'sqlite'
  kind: 'ours' | 'peer' | 'raw'
  /** Names of benchmarks. */
  takesPartIn: readonly string[]
  load: () => Promise<OpenSession>
}

const RUNS_TASKS = ['bulk', 'one-by-one', 'pickup', 'idle']

const withoutEngine = async (): Promise<OpenSession> => () => {
  throw new Error('the raw limit has no engine to open')
}

export const CONTENDERS: Record<string, ContenderEntry> = {
  'curfew-postgres': {
    store: 'postgres',
    kind: 'ours',
    takesPartIn: [...RUNS_TASKS, 'crash', 'timeouts', 'deadlines', 'backlog'],
    load: async () => (await import('./contenders/curfew.ts')).openCurfew,
  },
  'curfew-witness': {
    store: 'postgres',
    kind: 'ours',
    takesPartIn: ['crash'],
    load: async () => (await import('./contenders/curfew.ts')).openCurfewWithWitness,
  },
  'curfew-sqlite': {
    store: 'sqlite',
    kind: 'ours',
    takesPartIn: [...RUNS_TASKS, 'timeouts', 'deadlines', 'backlog'],
    load: async () => (await import('./contenders/curfew.ts')).openCurfew,
  },
  'graphile-worker': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: [...RUNS_TASKS, 'crash'],
    load: async () => (await import('./contenders/graphile-worker.ts')).openGraphileWorker,
  },
  'pg-boss': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: [...RUNS_TASKS, 'crash', 'timeouts'],
    load: async () => (await import('./contenders/pg-boss.ts')).openPgBoss,
  },
  dbos: {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: [...RUNS_TASKS, 'crash', 'timeouts'],
    load: async () => (await import('./contenders/dbos.ts')).openDbos,
  },
  'dbos-direct': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: ['pickup', 'one-by-one'],
    load: async () => (await import('./contenders/dbos.ts')).openDbosDirect,
  },
  'dbos-step': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: ['timeouts'],
    load: async () => (await import('./contenders/dbos.ts')).openDbosStep,
  },
  'raw-postgres': { store: 'postgres', kind: 'raw', takesPartIn: ['raw'], load: withoutEngine },
  'raw-sqlite': { store: 'sqlite', kind: 'raw', takesPartIn: ['raw'], load: withoutEngine },
}
