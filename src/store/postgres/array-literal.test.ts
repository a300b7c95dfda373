import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { arrayLiteral } from './array-literal.ts'

let client: pg.Client
beforeAll(async () => {
  client = new pg.Client(inject('postgresUrl'))
  await client.connect()
})
afterAll(() => client.end())

test('PostgreSQL reads back what was written, whatever the texts hold', async () => {
  // A text column takes no NUL and no half character; what enters is checked for both.
  const texts = fc.array(
    fc.option(fc.string({ unit: 'binary' }).filter((text) => text.isWellFormed() && !text.includes('\0'))),
  )
  await fc.assert(
    fc.asyncProperty(texts, async (values) => {
      const { rows } = await client.query('select $1::text[] as read', [arrayLiteral(values)])
      expect(rows[0].read).toEqual(values)
    }),
    { numRuns: 200 },
  )
  const hard = [
    '',
    'null',
    'NULL',
    '{}',
    '{a,b}',
    '"',
    '\\',
    '\\"',
    'a,b',
    ' x ',
    '\n\t',
    '"\\n"',
    '🙂',
    '}{',
  ]
  expect((await client.query('select $1::text[] as read', [arrayLiteral(hard)])).rows[0].read).toEqual(hard)
})

test('numbers and nothing', async () => {
  const numbers = [0, -1, 1_794_723_701_390, null]
  const { rows } = await client.query('select $1::int8[]::text as read', [arrayLiteral(numbers)])
  expect(rows[0].read).toBe('{0,-1,1794723701390,NULL}')
  expect(arrayLiteral([])).toBe('{}')
})
