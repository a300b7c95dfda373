/** Which of this process's Node options go on to a child: all but those that are about this very program. */

/** An inspector that waits, a second watch or test run, a script given as text. */
const OWN = /^--(inspect|debug|watch|test|eval|print|check|interactive|input-type|run|entry-url)(-|=|$)/
const OWN_SHORT = new Set(['-e', '-p', '-pe', '-c', '-i'])
/** Their value may be the next argument. */
const TAKES_VALUE = new Set([
  '-e',
  '-p',
  '-pe',
  '--eval',
  '--print',
  '--input-type',
  '--inspect-port',
  '--debug-port',
  '--watch-path',
  '--watch-kill-signal',
  '--run',
])

export function childExecArgv(execArgv: readonly string[]): string[] {
  const kept: string[] = []
  for (let i = 0; i < execArgv.length; i++) {
    const argument = execArgv[i] as string
    if (!OWN.test(argument) && !OWN_SHORT.has(argument)) kept.push(argument)
    else if (TAKES_VALUE.has(argument)) i++
  }
  return kept
}

/** `NODE_OPTIONS` without its inspector: a child that waits for a debugger would hang. */
export function childEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const options = env.NODE_OPTIONS
  if (!options?.includes('--inspect')) return { ...env }
  return { ...env, NODE_OPTIONS: options.replaceAll(/(^|\s)--inspect(-port\s+\S+|\S*)/g, '').trim() }
}

/**
 * Of all options only those that decide how a store can be reached: all that the supervisor needs. Preloaded modules
 * would slow its start.
 */
export function connectionOptions(execArgv: readonly string[], env: NodeJS.ProcessEnv): string[] {
  const all = [...(env.NODE_OPTIONS ?? '').split(/\s+/), ...execArgv]
  return all.filter((option) =>
    /^--(use-(openssl|bundled|system)-ca$|tls-|openssl-|dns-result-order=)/.test(option),
  )
}
