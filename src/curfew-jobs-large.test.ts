/** Jobs of many workflows, and of much data. */
import { expect } from 'vitest'
import { statuses } from '../scripts/acceptance/job-works.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { JobOptions } from './curfew.ts'
import { CurfewError, job, task, workflow } from './curfew.ts'

const echo = task({ name: 'echo', run: (input: unknown) => input })

onEachStore('large jobs', (test, kind) => {
  test('a chain of workflows runs to its end', async ({ world }) => {
    const count = kind === 'memory' ? 1_000 : 200
    const curfew = await world.open({ tasks: [echo] })
    const workflows = Array.from({ length: count }, (_, n) => ({
      ...{ id: `w${n}`, task: echo, input: n },
      dependsOn: n === 0 ? [] : [`w${n - 1}`],
    }))
    const handle = await curfew.submit(job({ workflows } as JobOptions))
    const result = await handle.result()
    expect(Object.values(result)).toEqual(Array.from({ length: count }, (_, n) => n))
  })

  test('what comes out of its workflows may be more than one record holds', async ({ world }) => {
    const big = task({ name: 'big', run: (letter: string) => letter.repeat(700_000) })
    const curfew = await world.open({ tasks: [big] })
    const workflows = ['a', 'b', 'c'].map((id) => ({ id, task: big, input: id }))
    const handle = await curfew.submit(job({ workflows } as JobOptions))
    const result = await handle.result()
    expect(Object.values(result).map((text) => (text as string).length)).toEqual([700_000, 700_000, 700_000])
  })

  test('a graph that many of them run is stored once, with what it calls alone', async ({ world }) => {
    const count = kind === 'memory' ? 1_000 : 100
    const described = (name: string, extra: object = {}) =>
      workflow({
        name,
        // Long enough that a thousand copies would be refused.
        description: `${name} ${'x'.repeat(2_000)}`,
        actions: { echo },
        nodes: [{ id: 'n', actionId: 'echo', input: 'input' }],
        ...extra,
      } as Parameters<typeof workflow>[0])
    const called = described('called')
    const shared = described('shared', { actions: { echo: called } })
    const other = described('other')
    const curfew = await world.open({ tasks: [echo], workflows: [called, shared, other] })
    const workflows = Array.from({ length: count }, (_, n) => ({ id: `w${n}`, workflow: shared, input: n }))
    const handle = await curfew.submit(
      job({ workflows: [...workflows, { id: 'other', workflow: other, input: 'x' }] } as JobOptions),
    )
    await handle.result()
    expect(new Set(Object.values(await statuses(handle)))).toEqual(new Set(['completed']))
    if (kind !== 'postgres') return
    const [row] = await world.sql(
      `select max(length(input)) as most from curfew.tasks where parent_id = '${handle.id}'`,
    )
    expect(Number(row?.most)).toBeLessThan(8_000)
  })

  test('one that is more than a record holds is refused at submit', async ({ world }) => {
    const curfew = await world.open({ tasks: [echo] })
    const workflows = ['a', 'b'].map((id) => ({ id, task: echo, input: id.repeat(600_000) }))
    const error = await errorOf(curfew.submit(job({ name: 'nightly', workflows } as JobOptions)), CurfewError)
    expect(error.message).toContain('definition and input of nightly')
  })
})
