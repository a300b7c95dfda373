import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import { afterAll, describe, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from './database.ts'
import type { PostgresServer } from './postgres.ts'
import { startPostgres } from './postgres.ts'

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(sql)).rows
  } finally {
    await client.end()
  }
}

describe('the server of the run', () => {
  test('gives out databases that share nothing', async () => {
    const server = inject('postgresUrl')
    const [one, two] = await Promise.all([createDatabase(server), createDatabase(server)])
    await query(one, 'create table notes (text text)')
    expect(await query(one, `select to_regclass('notes') is not null as found`)).toEqual([{ found: true }])
    expect(await query(two, `select to_regclass('notes') is not null as found`)).toEqual([{ found: false }])
    await Promise.all([dropDatabase(one), dropDatabase(two)])
    await expect(query(one, 'select 1')).rejects.toMatchObject({ code: '3D000' })
  })
})

describe('a server of its own', () => {
  const servers: PostgresServer[] = []
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.remove()))
  })

  test('keeps its data and port when it is stopped either way and started again', async () => {
    const server = await startPostgres({ settings: { work_mem: '5MB' } })
    servers.push(server)
    const url = await server.createDatabase()
    await query(url, 'create table notes (text text)')
    for (const mode of ['fast', 'immediate'] as const) {
      await query(url, `insert into notes values ('${mode}')`)
      await server.stop(mode)
      await expect(query(url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
      await server.start()
    }
    expect(await query(url, 'select text from notes order by text')).toEqual([
      { text: 'fast' },
      { text: 'immediate' },
    ])
    expect(await query(url, 'show work_mem')).toEqual([{ work_mem: '5MB' }])
    expect(await query(url, 'show fsync')).toEqual([{ fsync: 'off' }])
    await server.dropDatabase(url)
  })

  test('is durable when asked to be, and says why it cannot start', async () => {
    const server = await startPostgres({ durable: true })
    servers.push(server)
    expect(await query(server.url(), 'show fsync')).toEqual([{ fsync: 'on' }])
    expect(await query(server.url(), 'show synchronous_commit')).toEqual([{ synchronous_commit: 'on' }])
    await expect(startPostgres({ port: server.port })).rejects.toThrow(/Address already in use/)
  })

  test('is stopped and removed when its owner is killed', async () => {
    const module = new URL('./postgres.ts', import.meta.url).href
    const script = `
      import { startPostgres } from ${JSON.stringify(module)}
      const server = await startPostgres()
      const { Client } = await import('pg')
      const client = new Client({ connectionString: server.url() })
      await client.connect()
      const { rows } = await client.query('show data_directory')
      process.stdout.write(JSON.stringify({ url: server.url(), data: rows[0].data_directory }))
      setInterval(() => {}, 1000)`
    const owner = spawn(process.execPath, ['--input-type=module', '--eval', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [output] = (await once(owner.stdout, 'data')) as [Buffer]
    const { url, data } = JSON.parse(output.toString()) as { url: string; data: string }
    expect(existsSync(data)).toBe(true)
    owner.kill('SIGKILL')
    await once(owner, 'exit')
    while (existsSync(data)) await sleep(20)
    await expect(query(url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  })
})
