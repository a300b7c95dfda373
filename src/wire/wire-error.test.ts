import { Code, ConnectError } from '@connectrpc/connect'
import { expect, test } from 'vitest'
import { fromConnectError, toConnectError } from './wire-error.ts'

function logged() {
  const lines: string[] = []
  const write = (_fields: object, message: string) => void lines.push(message)
  return { lines, logger: { debug: write, info: write, warn: write, error: write } }
}

test.each(['ERR_STREAM_DESTROYED', 'EPIPE'])('a caller that has gone (%s) is no fault of ours', (code) => {
  const { lines, logger } = logged()
  const answer = toConnectError(Object.assign(new Error('write after end'), { code }), logger)
  expect(answer.code).toBe(Code.Canceled)
  expect(lines).toEqual([])
})

test('a bug of ours is told in the log, and not to the caller', () => {
  const { lines, logger } = logged()
  const answer = toConnectError(new TypeError('secret of row 7'), logger)
  expect(answer.code).toBe(Code.Internal)
  expect(answer.message).not.toContain('secret')
  expect(lines).toEqual(['a request failed for a reason of ours'])
})

test('a stream that was refused without a word says what is missing', () => {
  const fault = fromConnectError(new ConnectError('HTTP 401', Code.Unauthenticated))
  expect(fault).toMatchObject({ code: 'unauthenticated', message: 'the manager wants a token that it knows' })
  const told = fromConnectError(new ConnectError('this one said why', Code.Unauthenticated))
  expect(told.message).toBe('this one said why')
})
