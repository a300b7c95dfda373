/** Tokens and certificates, from the settings: of a manager that listens, and of whoever calls one. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'
import type { Config } from './config.ts'
import type { Io } from './io.ts'
import type { SettingName } from './settings.ts'
import { SETTINGS } from './settings.ts'

export interface Listener {
  address: string
  tokens: string[]
  hosts: readonly string[]
  tls?: { cert: string; key: string; clientCa?: string }
}

export interface Caller {
  token?: string
  tls?: { ca?: string; cert?: string; key?: string }
}

export async function listenerOf(io: Io, config: Config): Promise<Listener | false> {
  const { listen: address, tokens, hosts } = config.settings
  if (address === false) return false
  const fromFile = (await fileText(io, config, 'tokensFile'))?.split('\n') ?? []
  const lines = fromFile.map((line) => line.trim()).filter((line) => line !== '' && !line.startsWith('#'))
  const listener = { address, tokens: [...tokens, ...lines], hosts }
  const [cert, key] = await pair(io, config, 'tlsCert', 'tlsKey')
  const clientCa = await fileText(io, config, 'tlsClientCa')
  if (cert !== null && key !== null)
    return { ...listener, tls: { cert, key, ...(clientCa !== null && { clientCa }) } }
  if (clientCa !== null) throw needs(config, 'tlsClientCa', 'tlsCert')
  return listener
}

export async function callerOf(io: Io, config: Config): Promise<Caller> {
  const { token, managers } = config.settings
  const caller = token === null ? {} : { token }
  if (!managers.some((url) => url.startsWith('https:'))) return caller
  const ca = await fileText(io, config, 'tlsCa')
  const [cert, key] = await pair(io, config, 'tlsClientCert', 'tlsClientKey')
  const tls = { ...(ca !== null && { ca }), ...(cert !== null && key !== null && { cert, key }) }
  return { ...caller, ...(Object.keys(tls).length > 0 && { tls }) }
}

type FileSetting = 'tokensFile' | Extract<SettingName, `tls${string}`>

/** Both or none. */
async function pair(io: Io, config: Config, one: FileSetting, other: FileSetting) {
  const texts = [await fileText(io, config, one), await fileText(io, config, other)] as const
  if (texts[0] === null && texts[1] !== null) throw needs(config, other, one)
  if (texts[0] !== null && texts[1] === null) throw needs(config, one, other)
  return texts
}

async function fileText(io: Io, { settings, origins }: Config, name: FileSetting): Promise<string | null> {
  const file = settings[name]
  if (file === null) return null
  try {
    return await readFile(path.resolve(io.cwd, file), 'utf8')
  } catch (error) {
    const message = `${origins[name].place}: ${SETTINGS[name].key}: ${file} cannot be read: ${(error as Error).message}`
    throw new CurfewError('invalid_config', message, { fields: { file }, cause: error })
  }
}

function needs({ origins }: Config, given: FileSetting, missing: FileSetting): CurfewError {
  const { key } = SETTINGS[missing]
  return new CurfewError(
    'invalid_config',
    `${origins[given].place}: ${SETTINGS[given].key} is of no use without ${key}`,
    { hint: `Set ${key} too (${SETTINGS[missing].flag}, ${SETTINGS[missing].env}).` },
  )
}
