import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { TestIo } from './fixtures/test-io.ts'
import { makeProgram } from './program.ts'

const page = readFileSync(path.join(import.meta.dirname, '../../docs/cli.md'), 'utf8')
const program = await makeProgram(new TestIo({ cwd: '/' }))

/** Lines that call the command, as words. */
const calls = [...page.matchAll(/^```sh\n(.*?)^```$/gms)]
  .flatMap(([, block = '']) => block.trimEnd().split('\n'))
  .map((line) => line.split(' '))

function find(words: readonly string[], within: Command): Command {
  const found = within.commands.find((command) => command.name() === words[0])
  return found ? find(words.slice(1), found) : within
}

test('every command has a place on the page', () => {
  const names = program.commands.map((command) => command.name())
  expect(names.filter((name) => !calls.some(([, word]) => word === name))).toEqual([])
})

test.each(calls.map((words) => [words.join(' '), words] as const))('%s can be called', (_, words) => {
  expect(words[0]).toBe('curfew')
  const command = find(words.slice(1), program)
  expect(command.commands).toHaveLength(0)
  const options = command.options.map(({ long }) => long)
  expect(options).toEqual(expect.arrayContaining(words.filter((word) => word.startsWith('--'))))
})
