import { tmpdir } from 'node:os'
import { describe, expect, test } from 'vitest'
import { curfew, TestIo } from './fixtures/test-io.ts'
import { makeProgram } from './program.ts'

const cwd = tmpdir()

const io = new TestIo({ cwd })
const leaves = (await makeProgram(io)).commands.flatMap((command) =>
  command.commands.length === 0 ? [command] : command.commands,
)
const pathOf = (command: (typeof leaves)[number]): string[] =>
  command.parent?.parent ? [command.parent.name(), command.name()] : [command.name()]

describe('every command', () => {
  test.each(leaves.map((command) => [pathOf(command).join(' '), command] as const))(
    '%s takes --json and has help',
    async (_, command) => {
      const { code, out, err } = await curfew([...pathOf(command), '--help'], { cwd })
      expect([code, err]).toEqual([0, ''])
      expect(out).toContain(`Usage: curfew ${pathOf(command).join(' ')}`)
      expect(out).toContain('--json')
    },
  )

  test.each(leaves.map((command) => [pathOf(command).join(' ')]))(
    '%s shows an example of itself, and says in a sentence what it is for',
    async (name) => {
      const { out } = await curfew([...name.split(' '), '--help'], { cwd })
      expect(out).toMatch(new RegExp(`Examples?:\n {2}\\$ curfew ${name}`))
      expect(out).toMatch(/^Usage: .*\n\n[A-Z][a-z]+ /)
    },
  )
})

describe('usage', () => {
  test('--version', async () => {
    const { code, out } = await curfew(['--version'], { cwd })
    expect([code, out]).toEqual([0, expect.stringMatching(/^\d+\.\d+\.\d+\n$/)])
  })

  test('help is asked for, or shown to whoever says nothing', async () => {
    const asked = await curfew(['help'], { cwd })
    expect([asked.code, asked.err]).toEqual([0, ''])
    expect(asked.out).toContain('Usage: curfew')
    const nothing = await curfew([], { cwd })
    expect([nothing.code, nothing.out]).toEqual([2, ''])
    expect(nothing.err).toContain('Usage: curfew')
  })

  test.each([
    [['lst', '--json'], "unknown command 'lst'", 'Did you mean list?'],
    [['help', 'lst', '--json'], "unknown command 'lst'", 'Did you mean list?'],
    [['list', '--jsno', '--json'], "unknown option '--jsno'", 'Did you mean --json?'],
    [['status', '--json'], "missing required argument 'id'", 'Add --help to see how it is called.'],
    [['list', 'x', '--json'], expect.stringContaining('too many arguments'), expect.any(String)],
    [['timeouts', 'lits', '--json'], "unknown command 'lits'", 'Did you mean list?'],
    [['list', '--json', '--limit'], "option '--limit <number>' argument missing", expect.any(String)],
  ])('%j exits 2 with what was meant', async (args, message, hint) => {
    const { code, out, err } = await curfew(args, { cwd })
    expect([code, out, JSON.parse(err)]).toEqual([2, '', { error: { code: 'usage', message, hint } }])
    const plain = await curfew(
      args.filter((one) => one !== '--json'),
      { cwd },
    )
    expect([plain.code, plain.out, plain.err]).toEqual([2, '', expect.stringMatching(/^error: .*\n {2}\S/)])
  })

  test('errors are red on a terminal', async () => {
    expect((await curfew(['lst'], { cwd, terminal: true })).err).toContain('\x1b[31merror:\x1b[39m unknown')
    expect((await curfew(['lst'], { cwd, terminal: true, env: { NO_COLOR: '1' } })).err).toMatch(/^error: /)
  })
})
