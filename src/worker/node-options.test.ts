import { expect, test } from 'vitest'
import { childEnvironment, childExecArgv, connectionOptions } from './node-options.ts'

test.each([
  [
    ['--import', 'tsx', '--max-old-space-size=512'],
    ['--import', 'tsx', '--max-old-space-size=512'],
  ],
  [['--inspect-brk=0', '--inspect', '--inspect-port', '9230', '--no-warnings'], ['--no-warnings']],
  [['--input-type', 'module', '-e', 'open()', '--enable-source-maps'], ['--enable-source-maps']],
  [['--watch', '--watch-path=src', '--test', '--test-reporter=dot'], []],
])('of %j a task gets %j', (execArgv, kept) => {
  expect(childExecArgv(execArgv)).toEqual(kept)
})

test.each([
  ['--inspect-brk --import tsx', '--import tsx'],
  ['--import tsx --inspect-port 9230 --inspect=0', '--import tsx'],
  ['--import tsx', '--import tsx'],
])('NODE_OPTIONS %s becomes %s', (options, kept) => {
  expect(childEnvironment({ NODE_OPTIONS: options, HOME: '/h' })).toEqual({ NODE_OPTIONS: kept, HOME: '/h' })
})

test('the supervisor gets what it needs to reach the store', () => {
  const env = { NODE_OPTIONS: '--use-system-ca --import tsx --inspect' }
  expect(connectionOptions(['--tls-min-v1.3', '--watch'], env)).toEqual(['--use-system-ca', '--tls-min-v1.3'])
})
