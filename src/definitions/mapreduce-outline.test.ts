import { expect, test } from 'vitest'
import { validateJob } from './job.ts'
import { loadMapreduce } from './mapreduce.ts'
import { outlineOf, outlineValue } from './mapreduce-outline.ts'

const { model } = loadMapreduce(`name: drinks
mode: mapreduce
timeout: 1h
map:
  input: { items: [tea] }
  max_parallel: 3
  timeout_config: { timeout_action: retry, cleanup_grace_period_secs: 0 }
  agent_template: [{ shell: 'true' }]
reduce: [{ shell: 'true' }]
`)
const outline = outlineOf(model, { runId: `w_${'0'.repeat(26)}`, file: 'drinks.yml', folder: '/runs/w' })
const value = outlineValue(outline)

const check = (mapreduce: unknown) =>
  validateJob(JSON.stringify({ workflows: [{ id: 'a', mapreduce }] }), { file: 'job.json' })

test('it says what the graph and the options of the tasks are made of, and is read as it was written', () => {
  expect(outline).toMatchObject({
    ...{ name: 'drinks', timeoutMs: 3_600_000, phases: ['map', 'reduce'], maxParallel: 3 },
    ...{ graceMs: 0, attempts: 2 },
  })
  const [read] = check(value).definition?.model.workflows ?? []
  expect(read).toMatchObject({ kind: 'mapreduce', name: 'drinks.yml', outline })
})

test('without a limit of the whole, too', () => {
  const none = { ...outline, timeoutMs: null, file: null }
  const [read] = check(outlineValue(none)).definition?.model.workflows ?? []
  expect(read).toMatchObject({ name: 'drinks', outline: none })
})

test.each([
  ['run_id', 'w_1', 'must be the id of a run'],
  ['run_id', 5, 'must be the id of a run'],
  ['name', '', 'must be a text that is not empty'],
  ['folder', 1, 'must be a text'],
  ['file', 1, 'must be a text'],
  ['phases', ['map', 'mop'], "must be one of setup, map, reduce, merge, got 'mop'"],
  ['phases', 'map', 'must be a list'],
  ['max_parallel', 0, 'must be a whole number from 1'],
  ['attempts', 1_002, 'must be a whole number from 1'],
  ['timeout_ms', -1, 'must be'],
  ['grace_ms', 'x', 'must be a number'],
  ['commands', [], 'is not a key here'],
])('%s: %j is refused where it stands', (key, bad, message) => {
  const { definition, problems } = check({ ...value, [key]: bad })
  expect([definition, problems[0]]).toMatchObject([
    null,
    { severity: 'error', path: expect.stringContaining(`workflows[0].mapreduce.${key}`) },
  ])
  expect(problems[0]?.message).toContain(message)
})

test.each(Object.keys(value))('one without %s is refused', (key) => {
  const { [key]: _, ...rest } = value
  expect(check(rest).definition).toBeNull()
})
