import { expect, test } from 'vitest'
import { endpointOf } from './http-client.ts'

test.each([
  ['http://127.0.0.1:4242', 'http://127.0.0.1:4242'],
  ['unix:/run/curfew.sock', 'unix:/run/curfew.sock'],
  ['https://me@host/curfew', 'https://me@host/curfew'],
  ['https://me:secret@host:1/curfew', 'https://me:***@host:1/curfew'],
  ['https://:s@cret@host', 'https://:***@host'],
])('a manager at %s is told of without its password', (url, shown) => {
  const endpoint = endpointOf(url)
  expect(endpoint.url).toBe(shown)
  endpoint.close()
})
