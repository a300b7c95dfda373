/**
 * What the supervisor of a process calls when that process has died: everything it ran has been ended, so peers
 * need not wait for its lease. Runs in the supervisor, which knows no store of its own.
 */
import pg from 'pg'
import { connectionOptions, READ_CLOCK } from '../store/postgres/connection.ts'
import { NodeStatements } from './node-statements.ts'

export interface WitnessArgument {
  url: string
  nodeId: string
}

/** `left`: what could not be ended. Then the lease has to be waited for. */
export default async function tellPeers(argument: unknown, report: { left: unknown[] }): Promise<void> {
  if (report.left.length > 0) return
  const { url, nodeId } = argument as WitnessArgument
  const client = new pg.Client(connectionOptions(url))
  // The statement in flight rejects with it too; unheard it would end this process before the next try.
  client.on('error', () => undefined)
  await client.connect()
  try {
    const { rows } = await client.query(
      `${READ_CLOCK}, coalesce((select value::int8 from curfew.meta where key = 'clock_correction'), 0) as correction`,
    )
    const { sql, params } = new NodeStatements('postgres').setGone(nodeId, rows[0].raw + rows[0].correction)
    await client.query(sql, params as unknown[])
    await client.query(`select pg_notify('curfew', $1)`, [`gone ${nodeId}`])
  } finally {
    await client.end()
  }
}
