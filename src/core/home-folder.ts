import os from 'node:os'

/** Of a user that the machine does not know, as in many containers, it is the root: where those set it to. */
export function homeFolder(env: Readonly<Record<string, string | undefined>>): string {
  if (env.HOME) return env.HOME
  try {
    return os.homedir()
  } catch {
    return '/'
  }
}
