/**
 * What is captured of what a command printed: all but the line breaks at its end. They are not looked for by a pattern,
 * which would take minutes for a text of nothing but line breaks and something behind them.
 */
export function capturedText(stdout: string): string {
  let end = stdout.length
  while (stdout[end - 1] === '\n' || stdout[end - 1] === '\r') end--
  return stdout.slice(0, end)
}
