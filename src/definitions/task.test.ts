import type { StandardSchemaV1 } from '@standard-schema/spec'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import { parseInput } from './input-schema.ts'
import type { TaskContext, TaskDefinition } from './task.ts'
import { task } from './task.ts'

// The types are held by `tsc` (npm run check); the values by this run.
describe('a definition', () => {
  test('has its input typed from the schema and its output from run', () => {
    const resize = task({
      name: 'resize',
      input: z.object({ url: z.string(), width: z.coerce.number<string>() }),
      run: async (input, context) => {
        expectTypeOf(input).toEqualTypeOf<{ url: string; width: number }>()
        expectTypeOf(context).toEqualTypeOf<TaskContext>()
        return { bytes: input.width }
      },
    })
    expectTypeOf(resize).toEqualTypeOf<TaskDefinition<{ url: string; width: string }, { bytes: number }>>()
    expect(resize).toMatchObject({ kind: 'task', name: 'resize', isolation: 'inline', file: null })
    expect(resize.schema).not.toBeNull()
  })

  test('without a schema has its input typed from the handler', () => {
    const greet = task({ name: 'greet', run: (name: string) => `hello ${name}` })
    expectTypeOf(greet).toEqualTypeOf<TaskDefinition<string, string>>()
    expect(greet.schema).toBeNull()
    expect((greet.run as (name: string) => string)('you')).toBe('hello you')
  })

  test('unwraps what an async handler promises', () => {
    const count = task({ name: 'count', run: async () => 3 })
    expectTypeOf<NonNullable<(typeof count)['types']>['output']>().toEqualTypeOf<number>()
    expect(count.name).toBe('count')
  })
})

describe('parseInput', () => {
  const schema = z.object({ url: z.string(), sizes: z.array(z.object({ width: z.number() })).default([]) })

  test('hands back what the schema makes of it', async () => {
    expect(await parseInput('task', 'resize', schema, { url: 'x' })).toEqual({ url: 'x', sizes: [] })
  })

  test('leaves it alone without a schema', async () => {
    const input = { anything: 1 }
    expect(await parseInput('task', 'resize', null, input)).toBe(input)
  })

  test('names the task, and each place with what is wrong there', async () => {
    await expect(
      parseInput('task', 'resize', schema, { url: 5, sizes: [{ width: 'x' }] }),
    ).rejects.toMatchObject({
      code: 'invalid_input',
      message: expect.stringMatching(/^input of task resize: url: .+; sizes\.0\.width: /),
      fields: {
        retryable: false,
        issues: [{ path: 'url' }, { path: 'sizes.0.width' }],
      },
    })
  })

  test('waits for a schema that answers later, and reads paths in either form', async () => {
    const later: StandardSchemaV1 = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: async () => ({
          issues: [{ message: 'no', path: ['a', { key: 'b' }, 0] }, { message: 'at all' }],
        }),
      },
    }
    await expect(parseInput('task', 'resize', later, 1)).rejects.toThrow(
      'input of task resize: a.b.0: no; at all',
    )
  })
})
