import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { shownSetting } from './config.ts'
import type { SettingName } from './settings.ts'
import { SETTING_NAMES, SETTINGS } from './settings.ts'

const page = readFileSync(path.join(import.meta.dirname, '../../docs/configuration.md'), 'utf8')

function rowOf(name: SettingName): string {
  const { key, flag, env, kind, usedBy, requiredBy } = SETTINGS[name]
  const shown = shownSetting(name, SETTINGS[name].default)
  const users = usedBy.map((user) => (requiredBy?.includes(user) ? `**${user}**` : user))
  const cells = [
    `\`${key}\``,
    `\`${flag.split(' ')[0]}\``,
    `\`${env}\``,
    kind.name,
    shown === '' ? '' : `\`${shown}\``,
    users.join(', '),
  ]
  return `| ${cells.join(' | ')} |`
}

test('the documentation lists the settings as they are, each once', () => {
  const rows = page.split('\n').filter((line) => /^\| `[\w.]+` \| `--/.test(line))
  expect(rows).toEqual(SETTING_NAMES.map(rowOf))
})

test('the documentation says of each setting what it is for', () => {
  const explained = page.split('\n').flatMap((line) => /^- `([\w.]+)`: (.+)/.exec(line)?.[1] ?? [])
  expect(explained.toSorted()).toEqual(SETTING_NAMES.map((name) => SETTINGS[name].key).toSorted())
})

test('flags, variables and keys are each their own', () => {
  for (const field of ['flag', 'env', 'key'] as const) {
    const values = SETTING_NAMES.map((name) => SETTINGS[name][field])
    expect(new Set(values).size).toBe(values.length)
  }
})

test('whoever needs a setting uses it', () => {
  for (const name of SETTING_NAMES) {
    const { usedBy, requiredBy = [] } = SETTINGS[name]
    expect(usedBy).toEqual(expect.arrayContaining([...requiredBy]))
  }
})
