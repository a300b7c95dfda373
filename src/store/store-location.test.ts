import { expect, test } from 'vitest'
import { storeLocation } from './store-location.ts'

test.each([
  ['postgres://u:p@host/db', { dialect: 'postgres', url: 'postgres://u:p@host/db' }],
  ['postgresql://host/db', { dialect: 'postgres', url: 'postgresql://host/db' }],
  [':memory:', { dialect: 'sqlite', file: ':memory:' }],
  ['tasks.db', { dialect: 'sqlite', file: 'tasks.db' }],
  ['/var/lib/postgres://odd.db', { dialect: 'sqlite', file: '/var/lib/postgres://odd.db' }],
  ['C:\\data\\tasks.db', { dialect: 'sqlite', file: 'C:\\data\\tasks.db' }],
])('%s is a place', (store, location) => {
  expect(storeLocation(store)).toEqual(location)
})

test.each(['', '  ', undefined, 5, 'mysql://host/db', 'https://host/db'])('%s is none', (store) => {
  expect(() => storeLocation(store as string)).toThrow(expect.objectContaining({ code: 'invalid_option' }))
})
