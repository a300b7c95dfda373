/** Names that one manager knows and another does not: over a transport in memory, on a virtual clock. */
import { expect, test } from 'vitest'
import type { Answering } from '../../scripts/acceptance/managers-in-memory.ts'
import { gone, inTime, refusal, setUp } from '../../scripts/acceptance/managers-in-memory.ts'

const SUBMIT = { ...{ what: { task: 'echo' }, input: 1, key: null, timeout: null, delay: null, trace: null } }
const problem = (code: string) => ({
  ...{ severity: 'error', code, message: 'so it is', suggestion: null },
  ...{ file: null, line: null, column: null, path: '' },
})
const unknown = (known: number) => refusal('unknown_task', { name: 'echo', known })
const invalid = (...codes: string[]) => refusal('invalid_definition', { problems: codes.map(problem) })

function submits(...answers: (Error | null)[]) {
  const asked: string[] = []
  const world = setUp(
    ...answers.map((answer, i): Answering => {
      const submit: Answering['submit'] = ({ requestId }) => {
        asked.push(`${i} ${requestId}`)
        if (answer) throw answer
        return { id: `t_${i}`, kind: 'task', existing: false }
      }
      return { submit }
    }),
  )
  const submit = () => inTime(world.clock, world.service.submit({ ...SUBMIT, requestId: 'q' }))
  return { ...world, submit, asked }
}

test.each([
  ['a name', unknown(0)],
  ['a definition', invalid('unknown_key', 'unknown_agent')],
])('%s that a manager does not know is taken to the others, at once and with its id', async (_, first) => {
  const { submit, asked, service, counters } = submits(first, unknown(0), null)
  const { ended, took } = await submit()
  expect(ended).toMatchObject({ id: 't_2' })
  expect(took).toBeLessThan(100)
  expect(asked).toEqual(['0 q', '1 q', '2 q'])
  expect(counters).toMatchObject({ requests: 1, retries: 2, failures: 0 })
  expect((await service.serverStatus()).nodeId).toBe('n_0')
})

test('one that nobody knows is refused as the manager does that knows most', async () => {
  const { submit, asked, counters } = submits(unknown(0), unknown(3), gone(), unknown(3))
  expect((await submit()).ended).toMatchObject({ code: 'unknown_task', fields: { known: 3 } })
  expect(asked).toHaveLength(4)
  expect(counters.failures).toBe(1)
  const text = submits(invalid('unknown_task', 'unknown_agent'), invalid('unknown_agent'))
  expect((await text.submit()).ended).toMatchObject({ problems: [{ code: 'unknown_agent' }] })
})

test.each([
  ['by a manager that knows the name', [unknown(0), refusal('key_conflict'), null], 'key_conflict', 2],
  ['for what no manager can help', [invalid('unknown_key'), null], 'invalid_definition', 1],
  ['by the only one', [unknown(0)], 'unknown_task', 1],
])('what is refused %s is refused', async (_, answers, code, count) => {
  const { submit, asked } = submits(...answers)
  expect((await submit()).ended).toMatchObject({ code })
  expect(asked).toHaveLength(count)
})
