/** X3: `curfew watch` while its manager answers nobody for a while, as when it starts again. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { httpProxy } from '../../scripts/acceptance/http-proxy.ts'
import { Gates, until } from '../../scripts/acceptance/wire-world.ts'
import { Curfew, task } from '../curfew.ts'
import { TestIo } from './fixtures/test-io.ts'
import { main } from './program.ts'

test('X3: a look at what is below that nobody answers does not end a watch that goes on', async () => {
  const cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  const gates = new Gates()
  const steps = task({
    name: 'steps',
    run: async (_: null, { progress, signal }) => {
      await gates.pass('first', signal)
      progress(0.5)
      return gates.pass('second', signal)
    },
  })
  await using engine = await Curfew.open({ store: ':memory:', listen: '127.0.0.1:0', tasks: [steps] })
  let away = false
  let refused = 0
  const proxy = await httpProxy(engine.url as string, {
    refuse: (asked) => {
      if (!away || !asked.endsWith('/Explain')) return null
      refused++
      return 503
    },
  })
  try {
    const { id } = await engine.schedule(steps, null)
    const io = new TestIo({ cwd })
    const ended = main(['watch', id, '--manager', proxy.url], io)
    await io.printed(/steps running/)
    away = true
    gates.open('first')
    // The first and three more tries: then the client gives up.
    await until(() => refused === 4)
    away = false
    gates.open('second')
    expect([await ended, io.err]).toEqual([0, ''])
    expect(io.out).toMatch(/steps completed/)
  } finally {
    await proxy.close()
    await rm(cwd, { recursive: true, force: true })
  }
})
