import { expect, test } from 'vitest'
import { SystemClock, SystemRandomness } from '../core/system-clock.ts'
import { Funnel } from './funnel.ts'

test('whoever asked is answered also when telling the others fails', async () => {
  const errors: object[] = []
  const funnel = new Funnel<number, number, null>({
    ...{ clock: new SystemClock(), randomness: new SystemRandomness(), lanes: 1, batchRows: 500 },
    logger: { debug() {}, info() {}, warn() {}, error: (fields: object) => errors.push(fields) },
    commit: async (commands) => ({ answers: commands.map((command) => command * 2), committed: null }),
    committed: () => {
      throw new TypeError('nobody understands it')
    },
    ...{ wanted: () => 0, failed: () => undefined },
  })
  expect(await Promise.all([funnel.submit(1), funnel.submit(2)])).toEqual([2, 4])
  expect(await funnel.submit(3)).toBe(6)
  expect(errors).toEqual([
    { error: 'TypeError: nobody understands it' },
    { error: 'TypeError: nobody understands it' },
  ])
})
