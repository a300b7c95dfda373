import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { CommandRequest } from './command.ts'
import type { AttemptCommands, CommandTask } from './command-task.ts'
import { CommandAttempt, isCommandTask, needProcesses } from './command-task.ts'
import { probeCommands } from './fixtures/command-probe.ts'
import { hangingProgram } from './fixtures/hanging-program.ts'
import { assignmentOf, clock, processIn, readIfThere, SILENT } from './fixtures/process-probe.ts'
import { double } from './fixtures/process-tasks.ts'
import { shellTask } from './shell-task.ts'

const probe = probeCommands('attempts')
const stopped = { code: 'cancelled', message: 'enough' } as const
const read = (name: string) => readIfThere(join(probe.dir, name))

/** An attempt whose handler is given a way to run lines for the shell. */
function start(handler: (run: Run, commands: AttemptCommands) => unknown) {
  const definition: CommandTask = {
    ...{ kind: 'task', name: 'steps', work: null, policy: DEFAULT_POLICY, isolation: 'inline' },
    ...{ commands: true, file: null, schema: null },
    run: (_input, _context, commands) => {
      const given = commands as AttemptCommands
      return handler((script, over) => given.run(probe.request(script, over)), given)
    },
  }
  return new CommandAttempt(definition, assignmentOf('steps'), { clock, logger: SILENT }, probe.runner, {
    beat: () => undefined,
    extend: () => Promise.reject(new Error('not asked for')),
    note: async () => null,
  })
}
type Run = (script: string, over?: Partial<CommandRequest>) => ReturnType<AttemptCommands['run']>

describe('an attempt that runs commands', () => {
  test('ends with its handler, and with what its commands left', async () => {
    const attempt = start(async (run) => {
      await run('sleep 1000 > /dev/null 2>&1 & echo $! > server', { sweep: 'later' })
      const server = await processIn(probe.dir, 'server')
      await run('echo two > two')
      return server.alive()
    })
    expect(await attempt.ended).toEqual({ type: 'completed', output: 'true' })
    expect(read('two')).toBe('two')
    expect((await processIn(probe.dir, 'server')).alive()).toBe(false)
  })

  test('does not wait for a command that its handler forgot', async () => {
    const attempt = start(async (run) => {
      void run('echo $$ > forgotten; exec sleep 1000')
      return (await processIn(probe.dir, 'forgotten')).alive()
    })
    expect(await attempt.ended).toEqual({ type: 'completed', output: 'true' })
    expect((await processIn(probe.dir, 'forgotten')).alive()).toBe(false)
  })

  test('when it is told to stop, the command that runs is asked to, and no other begins', async () => {
    const attempt = start(async (run) => {
      const first = await run(
        `trap 'echo $? > asked; exit 3' TERM; echo $$ > first; while :; do sleep 0.05; done`,
      )
      const second = await run('touch second')
      return [first, second].map((end) => (end.type === 'ended' ? [end.receipt, end.exitCode] : end.code))
    })
    await processIn(probe.dir, 'first')
    attempt.abort(stopped)
    expect(await attempt.ended).toEqual({ type: 'completed', output: '[["aborted",3],"stopped"]' })
    expect(read('second')).toBeNull()
  })

  test('when it is killed, all its commands are, and it is said when they are gone', async () => {
    const attempt = start((run) =>
      Promise.all([1, 2].map((i) => run(`trap '' TERM; echo $$ > main${i}; while :; do sleep 1; done`))),
    )
    const mains = await Promise.all(['main1', 'main2'].map((name) => processIn(probe.dir, name)))
    attempt.abort(stopped)
    expect(await attempt.kill()).toBe('killed')
    expect(mains.map(({ alive }) => alive())).toEqual([false, false])
    expect(JSON.parse(((await attempt.ended) as { output: string }).output)).toMatchObject([
      { receipt: 'killed' },
      { receipt: 'killed' },
    ])
  })

  test('a handler that goes on although its commands are gone is abandoned', async () => {
    const release = Promise.withResolvers<void>()
    const attempt = start(async (run) => {
      await run('echo $$ > main; exec sleep 1000')
      await release.promise
    })
    await processIn(probe.dir, 'main')
    attempt.abort(stopped)
    expect(await attempt.kill()).toBe('abandoned')
    release.resolve()
    await attempt.ended
  })

  test.skipIf(process.platform !== 'linux')(
    'commands that hang while they start are killed, and those that wait for them are not started',
    async () => {
      const program = hangingProgram('#!/bin/sh\necho run >> run\n')
      const commands = [1, 2, 3, 4]
      const attempt = start((run) => Promise.all(commands.map(() => run('', { argv: [program.file] }))))
      await program.asked
      attempt.abort(stopped)
      expect(await attempt.kill()).toBe('killed')
      const { output } = (await attempt.ended) as { output: string }
      const killed = { type: 'ended', receipt: 'killed', signal: 'SIGKILL', left: [] }
      const waited = { type: 'not_started', code: 'stopped' }
      expect(JSON.parse(output)).toMatchObject([killed, killed, killed, waited])
      expect(read('run')).toBeNull()
    },
  )

  test.skipIf(process.platform !== 'linux')(
    'one that was told to stop while a command hung at its start asks that one when it runs',
    async () => {
      const text = `#!/bin/sh\nwhile :; do sleep 0.05; done\n`
      const program = hangingProgram(text)
      const attempt = start((run) => run('', { argv: [program.file] }))
      await program.asked
      attempt.abort(stopped)
      program.letGo()
      const { output } = (await attempt.ended) as { output: string }
      expect(JSON.parse(output)).toMatchObject({ receipt: 'terminated', signal: 'SIGTERM' })
    },
  )

  test('may end what its commands left before it has ended itself', async () => {
    const attempt = start(async (run, commands) => {
      await run('sleep 1000 > /dev/null 2>&1 & echo $! > left', { sweep: 'later' })
      const left = await processIn(probe.dir, 'left')
      const end = await commands.endLeft()
      return [end, left.alive()]
    })
    expect(await attempt.ended).toEqual({ type: 'completed', output: '[{"killed":true,"left":[]},false]' })
  })
})

test('commands and tasks in processes of their own need a supervisor', () => {
  expect(isCommandTask(shellTask)).toBe(true)
  expect(needProcesses([shellTask])).toBe(true)
  expect(needProcesses([double])).toBe(true)
  expect(needProcesses([{ ...double, isolation: 'inline' }])).toBe(false)
})
