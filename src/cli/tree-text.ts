/** A tree of lines, as `tree` draws one. */
export interface Branch {
  /** The first stands at the branch, the others below it. */
  lines: readonly string[]
  below: readonly Branch[]
}

export function treeLines({ lines, below }: Branch): string[] {
  const rest = below.length > 0 ? '│ ' : '  '
  return [
    ...lines.slice(0, 1),
    ...lines.slice(1).map((line) => rest + line),
    ...below.flatMap((branch, i) => {
      const last = i === below.length - 1
      const [first = '', ...others] = treeLines(branch)
      return [`${last ? '└─' : '├─'} ${first}`, ...others.map((line) => `${last ? '   ' : '│  '}${line}`)]
    }),
  ]
}
