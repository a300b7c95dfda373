import { expect, test } from 'vitest'
import { shownSetting } from './config.ts'
import type { SettingName } from './settings.ts'

test.each<[SettingName, never, string]>([
  [
    'store',
    'postgres://me:pass:w/o@rd@db:5432/x?sslpassword=q&a=1' as never,
    'postgres://me:***@db:5432/x?sslpassword=***&a=1',
  ],
  ['store', './curfew.db' as never, './curfew.db'],
  ['managers', ['https://u:p@a'] as never, 'https://u:***@a'],
  ['token', 'cft_secret' as never, '***'],
  ['tokens', ['ci=client:sha256:abc', 'cft_oops'] as never, 'ci=client:***, ***'],
  ['drain', 90_000 as never, '1m30s'],
  ['queues', null as never, ''],
  ['queueLimits', { bank: 2, mail: null } as never, 'bank=2, mail=none'],
  ['listen', false as never, 'false'],
])('%s is shown without what is secret in it', (name, value, shown) => {
  expect(shownSetting(name, value)).toBe(shown)
})
