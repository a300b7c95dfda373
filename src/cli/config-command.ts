/** `curfew config`: every setting as it would count here, and where it comes from. */
import { Command } from 'commander'
import { Colours } from './colours.ts'
import { addSettings, loadConfig, plainSetting, shownSetting } from './config.ts'
import { FILE_NAMES } from './config-file.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { jsonOption, oneOf } from './options.ts'
import { outputWidth, printJson, printLines } from './print.ts'
import type { SettingName } from './settings.ts'
import { SETTING_NAMES, SETTINGS, USERS } from './settings.ts'
import { tableLines } from './text-table.ts'

export function configCommand(io: Io): Command {
  const command = new Command('config')
    .description('Print the settings that count here, and where each comes from: flag, environment or file')
    .argument('[command]', 'only what it uses: manager, worker, dev or run; client for all others')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew config
  $ curfew config worker --json | jq .settings.managers`,
    )
  return jsonOption(addSettings(command, 'all')).action(async (name: string | undefined, flags: Flags) => {
    const user = name === undefined ? null : oneOf(name, 'command', USERS)
    // What a command misses is no reason not to show the rest.
    const { file, settings, origins } = await loadConfig(io, 'all', flags)
    const missing = (one: SettingName) =>
      user !== null && origins[one].from === 'default' && SETTINGS[one].requiredBy?.includes(user)
    const names = SETTING_NAMES.filter((one) => user === null || SETTINGS[one].usedBy.includes(user))
    if (flags.json) {
      const entries = names.map((one) => {
        const { flag, env } = SETTINGS[one]
        const known = missing(one)
          ? { value: null, from: 'missing', place: null }
          : { value: plainSetting(one, settings[one]), ...origins[one] }
        return [SETTINGS[one].key, { ...known, flag: flag.split(' ')[0], variable: env }]
      })
      return printJson(io, { file, settings: Object.fromEntries(entries) })
    }
    const columns = [
      { title: 'SETTING', text: (one: SettingName) => SETTINGS[one].key },
      {
        title: 'VALUE',
        text: (one: SettingName) => (missing(one) ? '-' : shownSetting(one, settings[one]) || '-'),
        shrinksTo: 20,
      },
      { title: 'FROM', text: (one: SettingName) => (missing(one) ? 'missing' : origins[one].place) },
    ]
    const colours = new Colours(io, io.stdout)
    printLines(io, [
      file === null ? `No configuration file (${FILE_NAMES[0]}) in ${io.cwd}` : `Configuration file: ${file}`,
      '',
      ...tableLines(names, columns, { width: outputWidth(io), colours }),
    ])
  })
}
