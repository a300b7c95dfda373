// Map-reduces in jobs of a program with an engine of its own.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { until } from './cli/fixtures/cli-process.ts'
import type { OpenOptions } from './curfew.ts'
import { Curfew, job, loadJob, task } from './curfew.ts'
import { loadMapreduce } from './definitions/mapreduce.ts'
import { outlineOf, outlineValue } from './definitions/mapreduce-outline.ts'
import { TemporaryRepository } from './mapreduce/fixtures/temporary-repository.ts'

vi.setConfig({ testTimeout: 60_000 })

let repository: TemporaryRepository
let file: string
let open: Curfew[]
beforeEach(() => {
  repository = TemporaryRepository.begin()
  open = []
  file = write('drinks.yml', ['tea', 'slow'])
  vi.stubEnv('CURFEW_STATE_DIR', home('state'))
  vi.stubEnv('HERE', repository.home)
})
afterEach(async () => {
  for (const engine of open) await engine.close()
  vi.unstubAllEnvs()
  repository.remove()
})

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }
const home = (name: string) => path.join(repository.home, name)
const told = () => (existsSync(home('told')) ? readFileSync(home('told'), 'utf8').trim().split('\n') : [])
const runs = () => (existsSync(home('state/runs')) ? readdirSync(home('state/runs')) : [])

function write(name: string, items: readonly string[]): string {
  const made = home(name)
  writeFileSync(
    made,
    `name: drinks
mode: mapreduce
map:
  input: { items: ${JSON.stringify(items)} }
  max_parallel: 1
  timeout_config: { cleanup_grace_period_secs: 2 }
  agent_template:
    - shell: |
        if test \${item} = slow; then echo waits >> "$HERE/told"; until test -e "$HERE/go"; do sleep 0.05; done; fi
        echo "\${item} \${args}" >> "$HERE/told"
`,
  )
  return made
}

const count = task({ name: 'count', run: () => told().length })
const nightly = () =>
  job({
    name: 'nightly',
    workflows: [
      { id: 'drinks', mapreduce: file, input: { args: 'cold', worktrees: false } },
      { id: 'count', task: count, dependsOn: 'drinks' },
    ],
  })

async function opened(options: Partial<OpenOptions> = {}): Promise<Curfew> {
  const engine = await Curfew.open({ store: home('jobs.db'), tasks: [count], mapreduce: true, ...options })
  open.push(engine)
  return engine
}

test('a job with one runs to its end, and its folder goes', async () => {
  writeFileSync(home('go'), '')
  const engine = await opened()
  const handle = await engine.submit(nightly())
  expect(await handle.result()).toMatchObject({ count: 3 })
  expect(told()).toEqual(['tea cold', 'waits', 'slow cold'])
  const [member] = await handle.workflows()
  expect(member).toMatchObject({ kind: 'mapreduce', name: file, status: 'completed' })
  expect((await engine.workflow(member?.runId ?? '').run()).status).toBe('completed')
  await until(() => runs().length === 0)
})

test('two of them beside each other have queues and slots of their own, with one slot for everything else', async () => {
  const other = write('other.yml', ['slow'])
  const engine = await opened({ concurrency: 1 })
  const both = job({
    workflows: [
      { id: 'a', mapreduce: file, input: { args: 'a', worktrees: false } },
      { id: 'b', mapreduce: other, input: { args: 'b', worktrees: false } },
      { id: 'count', task: count },
    ],
  })
  const handle = await engine.submit(both)
  await until(() => told().filter((one) => one === 'waits').length === 2)
  await handle.workflow('count').result()
  writeFileSync(home('go'), '')
  await handle.result()
  expect(told().toSorted()).toEqual(['slow a', 'slow b', 'tea a', 'waits', 'waits'])
})

test('the next open goes on with what a close stopped; only an engine that says so', async () => {
  const engine = await opened()
  const { id } = await engine.submit(nightly())
  await until(() => told().includes('waits'))
  await engine.close()
  writeFileSync(home('go'), '')
  const without = await opened({ mapreduce: false })
  expect((await without.job(id).view()).status).toBe('running')
  await without.close()
  const next = await opened()
  expect(await next.job(id).result()).toMatchObject({ count: 4 })
  expect(told()).toEqual(['tea cold', 'waits', 'waits', 'slow cold'])
  await until(() => runs().length === 0)
})

test('what ended while nobody ran it is put away by the next open', async () => {
  const engine = await opened()
  const { id } = await engine.submit(nightly())
  await until(() => told().includes('waits'))
  await engine.close()
  const without = await opened({ mapreduce: false })
  await without.job(id).cancel()
  await until(async () => (await without.job(id).view()).status === 'cancelled')
  await without.close()
  expect(runs()).toHaveLength(1)
  await opened()
  await until(() => runs().length === 0)
})

test('one whose folder is broken is told, and keeps nobody from the store', async () => {
  const engine = await opened()
  const { id } = await engine.submit(nightly())
  await until(() => told().includes('waits'))
  await engine.close()
  writeFileSync(home(path.join('state/runs', runs()[0] as string, 'items.jsonl')), 'rubbish\n')
  const errors: object[] = []
  const next = await opened({ logger: { ...silent, error: (fields: object) => errors.push(fields) } })
  expect(errors).toMatchObject([{ jobId: id, error: expect.stringContaining('items.jsonl') }])
  expect(await next.schedule(count).then((one) => one.result())).toBe(2)
  expect(await next.job(id).cancel()).toBe('cancelled')
})

test('a workflow that is one is cancelled with its commands, and what needs it with it', async () => {
  const engine = await opened()
  const handle = await engine.submit(nightly())
  await until(() => told().includes('waits'))
  const part = handle.workflow('drinks')
  expect(await part.cancel({ dependents: false })).toBe('cancelled')
  const { success, ledger } = await part.cancelled({ timeout: '30s' })
  expect([success, ledger.map(({ receipt }) => receipt)]).toEqual([true, ['aborted']])
  expect((await handle.workflows()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled'])
  await until(() => runs().length === 0)
})

test('in the text of a job its file is relative to that of the job', async () => {
  writeFileSync(home('go'), '')
  const text = 'workflows: [{ id: a, mapreduce: drinks.yml, input: { args: warm, worktrees: false } }]\n'
  const engine = await opened()
  const handle = await engine.submit(loadJob(text, { file: home('job.yml') }))
  expect(await handle.result()).toMatchObject({ a: { counts: { total: 2, successful: 2 } } })
  expect(told()).toEqual(['tea warm', 'waits', 'slow warm'])
})

test('an outline whose run is there already parks its job, and no other', async () => {
  const engine = await opened({ logger: silent })
  const model = loadMapreduce(readFileSync(file, 'utf8')).model
  const runId = `w_${'0'.repeat(26)}`
  const mapreduce = outlineValue(outlineOf(model, { runId, file, folder: home('') }))
  const definition = JSON.stringify({ workflows: [{ id: 'a', mapreduce }] })
  const [first, second] = [await engine.submitNamed({ definition }), await engine.submitNamed({ definition })]
  await until(async () => (await engine.job(second.id).view()).parked !== null)
  expect((await engine.job(first.id).view()).parked).toBeNull()
  expect(await engine.schedule(count).then((one) => one.result())).toBe(0)
  expect([await engine.job(first.id).cancel(), await engine.job(second.id).cancel()]).toEqual([
    ...['cancelled', 'cancelled'],
  ])
})

test('the same key again is the same job, and leaves no folder behind', async () => {
  const engine = await opened()
  const first = await engine.submit(nightly(), { key: 'k' })
  await until(() => told().includes('waits'))
  const again = await engine.submit(nightly(), { key: 'k' })
  expect([again.id, again.existing, runs().length]).toEqual([first.id, true, 1])
  writeFileSync(home('go'), '')
  await first.result()
})

test('bad ones are refused before anything is stored', async () => {
  const engine = await opened()
  const lost = job({ name: 'lost', workflows: [{ id: 'a', mapreduce: home('nowhere.yml') }] })
  await expect(engine.submit(lost)).rejects.toThrow(
    /workflows\[0\]\.mapreduce: .*nowhere\.yml cannot be read/,
  )
  const text = 'workflows:\n  - { id: a, mapreduce: drinks.yml, input: { worktree: false } }\n'
  expect(() => loadJob(text, { file: 'job.yml' })).toThrow(
    /job\.yml:2:\d+.*worktree.*Did you mean 'worktrees'/s,
  )
  const plain = await Curfew.open({ store: ':memory:' })
  open.push(plain)
  const refused = plain.submit(job({ workflows: [{ id: 'a', mapreduce: file }] }))
  await expect(refused).rejects.toMatchObject({
    ...{ code: 'unknown_mapreduce', hint: expect.stringContaining('mapreduce: true') },
  })
  expect([runs(), (await engine.list({ kind: 'job' })).tasks]).toEqual([[], []])
  await expect(Curfew.open({ store: ':memory:', mapreduce: 1 as never })).rejects.toThrow(/mapreduce must be/)
})
