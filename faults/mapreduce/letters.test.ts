// Dead letters that nobody wants to store: that is said, and the counts say it too.

import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect } from 'vitest'
import type { World } from './world.ts'
import { summaryOf, worldTest as test } from './world.ts'

const LIMIT = { timeout: 120_000 }

const pipeline = (items: unknown[] = [{ name: 'tea' }, { name: 'milk' }]) => ({
  map: { input: { items }, agent_template: [{ shell: 'exit 3' }] },
})

/** A store that does not take these letters. */
async function refuseLetters(world: World, name: string, when: string): Promise<void> {
  const empty = { map: { input: { items: [] }, agent_template: [{ shell: 'true' }] } }
  await world.run(empty, ['--store', name])
  const store = new DatabaseSync(path.join(world.top, name))
  store.exec(`create trigger refuse before insert on dead_letters when ${when}
    begin select raise(abort, 'no letters today'); end`)
  store.close()
}

test('H1: a letter that the store refuses is told of, and counted', LIMIT, async ({ world }) => {
  await refuseLetters(world, 'curfew.db', "new.name = 'tea'")
  const ran = await world.run(pipeline())
  const { jobId, counts, deadLetters, lettersRefused } = summaryOf(ran)
  expect([ran.code, counts.total, counts.failed, deadLetters]).toEqual([1, 2, 2, 1])
  expect(lettersRefused).toMatchObject([
    { itemId: 'item-0', name: 'tea', message: expect.stringMatching(/no letters today/) },
  ])
  expect(ran.stderr).toMatch(/tea has no dead letter, as nobody would store it: .*no letters today/)
  expect(ran.stderr).toMatch(/tea is NOT in the dead letters: .*no letters today/)
  expect((await world.letters(jobId)).map(({ itemId }) => itemId)).toEqual(['item-1'])
  const events = await world.curfew(['events', jobId, '--json'])
  const told = events.stdout.split('\n').filter((line) => line.includes('letter_refused'))
  expect(told.map((line) => JSON.parse(line))).toMatchObject([{ item: 'item-0', isKept: false }])
})

test('H1: also that of a manager; the run ends, and does nothing twice', LIMIT, async ({ world }) => {
  await refuseLetters(world, 'manager.db', "new.name = 'tea'")
  const { args } = await world.manager()
  const ran = await world.run(pipeline(), args)
  const { jobId, counts, deadLetters, lettersRefused } = summaryOf(ran)
  expect([ran.code, counts.total, counts.failed, deadLetters]).toEqual([1, 2, 2, 1])
  expect(lettersRefused).toMatchObject([
    { itemId: 'item-0', message: expect.stringMatching(/no letters today/) },
  ])
  expect(ran.stderr).toMatch(/tea has no dead letter/)
  const events = await world.curfew(['events', jobId, '--json', ...args])
  const told = events.stdout.split('\n').map((line) => (line ? JSON.parse(line) : {}))
  expect(told.filter(({ type }) => type === 'letter_refused')).toMatchObject([{ item: 'item-0' }])
  expect(told.filter(({ type }) => type === 'command_failed')).toHaveLength(2)
})

test('H1: one that is only too large is kept with less in it', LIMIT, async ({ world }) => {
  await refuseLetters(world, 'curfew.db', "new.body like '%exit 3%'")
  const ran = await world.run(pipeline([{ name: 'tea' }]))
  const { jobId, deadLetters, lettersRefused } = summaryOf(ran)
  expect([ran.code, deadLetters, lettersRefused]).toEqual([1, 1, []])
  expect(ran.stderr).toMatch(/The dead letter of tea was refused, and is kept without its item and history/)
  expect(await world.letters(jobId)).toMatchObject([
    {
      itemId: 'item-0',
      errorType: 'failure',
      body: { eligible: false, failure: { code: 'command_failed' } },
    },
  ])
})

test('H1: an item that is nested too deeply for a letter is cut out of it', LIMIT, async ({ world }) => {
  const { args, client } = await world.manager()
  let deep: unknown = 'tea'
  for (let i = 0; i < 99; i++) deep = [deep]
  const lines = [{ name: 'deep', deep }, { name: 'milk' }].map((item) => `${JSON.stringify(item)}\n`)
  world.write('items.jsonl', lines.join(''))
  const { map } = pipeline()
  const ran = await world.run({ map: { ...map, input: 'items.jsonl' } }, args)
  const { jobId, deadLetters } = summaryOf(ran)
  expect([ran.code, deadLetters]).toEqual([1, 2])
  const { body } = await client.deadLetters.get(jobId, 'item-0')
  expect(body).toMatchObject({ eligible: false, item: { cut: expect.anything() }, output: { stdout: '' } })
})

test('H1: thousands of long names of files do not make a letter too large', LIMIT, async ({ world }) => {
  const { args, client } = await world.manager()
  const step = 'i=0; while test $i -lt 1000; do : > "$(printf "%0240d" $i)"; i=$((i + 1)); done; exit 3'
  const map = { input: { items: [{ name: 'tea' }] }, agent_template: [{ shell: step }] }
  const ran = await world.run({ map }, args)
  const { jobId, deadLetters, lettersRefused } = summaryOf(ran)
  expect([ran.code, deadLetters, lettersRefused]).toEqual([1, 1, []])
  const { body } = await client.deadLetters.get(jobId, 'item-0')
  expect(body).toMatchObject({ eligible: true, item: { name: 'tea' } })
})
