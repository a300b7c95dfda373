import { expect, test } from 'vitest'
import { z } from 'zod'
import { HandlerError } from '../core/failure.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import { task } from '../definitions/task.ts'
import { assignmentOf, clock, SILENT } from './fixtures/process-probe.ts'
import { runHandler } from './handler.ts'
import { createTaskContext } from './task-context.ts'

function run(definition: TaskDefinition, input: unknown = null, stop = false) {
  const assignment = assignmentOf(definition.name, input)
  const callbacks = { beat: () => {}, extend: () => new Promise<never>(() => {}) }
  const open = createTaskContext(assignment, { clock, logger: SILENT }, callbacks)
  if (stop) open.abort({ code: 'cancelled', message: 'stop' })
  return runHandler(definition, assignment, open)
}

test('the input is transformed by its schema, the output becomes text', async () => {
  const definition = task({
    name: 'trim',
    input: z.object({ text: z.string().trim() }),
    run: async ({ text }) => ({ text }),
  })
  expect(await run(definition, { text: ' a ' })).toEqual({ type: 'completed', output: '{"text":"a"}' })
})

test('an input that does not fit fails for good and says where', async () => {
  const definition = task({ name: 'strict', input: z.object({ n: z.number() }), run: () => 1 })
  expect(await run(definition, { n: 'x' })).toMatchObject({
    type: 'failed',
    failure: { code: 'invalid_input', retryable: false, details: [{ path: 'n' }] },
  })
})

test('what is thrown is a failure that may be retried, unless it says otherwise', async () => {
  const throwing = (thrown: unknown) =>
    task({
      name: 'throwing',
      run: () => {
        throw thrown
      },
    })
  expect(await run(throwing('plain'))).toMatchObject({ failure: { message: 'plain', retryable: true } })
  const permanent = new HandlerError('never', { retryable: false })
  expect(await run(throwing(permanent))).toMatchObject({ failure: { message: 'never', retryable: false } })
})

test('an output that cannot be stored fails for good', async () => {
  const definition = task({ name: 'cyclic', run: () => 1n })
  expect(await run(definition)).toMatchObject({ failure: { code: 'invalid_json', retryable: false } })
})

test('a handler that was told to stop before it began is not begun', async () => {
  let begun = false
  const definition = task({
    name: 'never',
    run: () => {
      begun = true
    },
  })
  expect(await run(definition, null, true)).toMatchObject({ failure: { code: 'cancelled' } })
  expect(begun).toBe(false)
})

test('whatever can be waited for is waited for', async () => {
  const later = (value: unknown) => ({
    // biome-ignore lint/suspicious/noThenProperty: what a handler gives back may be anything
    then: (resolve: (value: unknown) => void) => resolve(value),
  })
  const given = [1, Promise.resolve(1), later(1), Object.assign(() => 0, later(1))]
  for (const value of given) {
    const definition = task({ name: 'given', run: () => value })
    expect(await run(definition)).toEqual({ type: 'completed', output: '1' })
  }
})
