/** The chaos run with agents: what runs in its engines, and how it is judged. */
import path from 'node:path'
import type { ChaosLoad } from '../chaos/driver.ts'
import type { AgentRecord } from './auditor.ts'
import { auditAgents } from './auditor.ts'
import type { AgentSummary } from './summary.ts'
import { summarizeAgents } from './summary.ts'

export const AGENTS: ChaosLoad<AgentRecord, AgentSummary> = {
  program: path.join(import.meta.dirname, 'program.ts'),
  longestLifeMs: 2_500,
  audit: auditAgents,
  summarize: summarizeAgents,
}
