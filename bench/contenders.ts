// Who takes part, over which store, and in what.

import type { LoadCluster, OpenAgents, OpenSession } from './contender.ts'

export interface ContenderEntry {
  store: 'postgres' | 'sqlite'
  kind: 'ours' | 'peer' | 'raw'
  /** Names of benchmarks. */
  takesPartIn: readonly string[]
  load: () => Promise<OpenSession>
  loadAgents?: () => Promise<OpenAgents>
  loadCluster?: LoadCluster
}

const RUNS_TASKS = ['bulk', 'one-by-one', 'pickup', 'idle']
const RUNS_AGENTS = ['agents', 'waiting-agents', 'signals']
const RUNS_GRAPHS = ['graphs', 'fan-out']
const OVER_THE_WIRE = ['cluster', 'attached-workers', 'watch']

const noTasks = async (): Promise<OpenSession> => () => {
  throw new Error('takes no part in what is measured with tasks')
}

export const CONTENDERS: Record<string, ContenderEntry> = {
  'curfew-postgres': {
    store: 'postgres',
    kind: 'ours',
    takesPartIn: [
      ...RUNS_TASKS,
      ...['crash', 'timeouts', 'deadlines', 'backlog'],
      ...RUNS_AGENTS,
      ...RUNS_GRAPHS,
      ...OVER_THE_WIRE,
    ],
    load: async () => (await import('./contenders/curfew.ts')).openCurfew,
    loadAgents: async () => (await import('./contenders/curfew-agents.ts')).openCurfewAgents,
    loadCluster: async () => (await import('./contenders/curfew-cluster.ts')).curfewCluster,
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
    takesPartIn: [
      ...RUNS_TASKS,
      ...['timeouts', 'deadlines', 'backlog', 'mapreduce'],
      ...RUNS_AGENTS,
      ...RUNS_GRAPHS,
    ],
    load: async () => (await import('./contenders/curfew.ts')).openCurfew,
    loadAgents: async () => (await import('./contenders/curfew-agents.ts')).openCurfewAgents,
  },
  'graphile-worker': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: [...RUNS_TASKS, 'crash', 'cluster'],
    load: async () => (await import('./contenders/graphile-worker.ts')).openGraphileWorker,
    loadCluster: async () => (await import('./contenders/graphile-worker.ts')).graphileCluster,
  },
  'graphile-worker-plain': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: ['cluster'],
    load: noTasks,
    loadCluster: async () => (await import('./contenders/graphile-worker.ts')).graphilePlainCluster,
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
    takesPartIn: [...RUNS_TASKS, 'crash', 'timeouts', 'agents'],
    load: async () => (await import('./contenders/dbos.ts')).openDbos,
    loadAgents: async () => (await import('./contenders/dbos-agents.ts')).openDbosAgents,
  },
  'dbos-direct': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: ['pickup', 'one-by-one', 'agents'],
    load: async () => (await import('./contenders/dbos.ts')).openDbosDirect,
    loadAgents: async () => (await import('./contenders/dbos-agents.ts')).openDbosAgentsDirect,
  },
  'dbos-step': {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: ['timeouts'],
    load: async () => (await import('./contenders/dbos.ts')).openDbosStep,
  },
  openworkflow: {
    store: 'postgres',
    kind: 'peer',
    takesPartIn: ['agents'],
    load: noTasks,
    loadAgents: async () => (await import('./contenders/openworkflow.ts')).openOpenWorkflowAgents,
  },
  'gnu-parallel': { store: 'sqlite', kind: 'peer', takesPartIn: ['mapreduce'], load: noTasks },
  'raw-postgres': {
    store: 'postgres',
    kind: 'raw',
    takesPartIn: ['raw', 'agents'],
    load: noTasks,
    loadAgents: async () => (await import('./benchmarks/raw-agents.ts')).openRawAgents,
  },
  'raw-postgres-overlapped': {
    store: 'postgres',
    kind: 'raw',
    takesPartIn: ['agents'],
    load: noTasks,
    loadAgents: async () => (await import('./benchmarks/raw-agents.ts')).openRawAgentsOverlapped,
  },
  'raw-sqlite': {
    store: 'sqlite',
    kind: 'raw',
    takesPartIn: ['raw', 'agents'],
    load: noTasks,
    loadAgents: async () => (await import('./benchmarks/raw-agents.ts')).openRawAgents,
  },
}
