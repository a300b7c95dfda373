// The first example of the README and what it says that it prints.

export interface ReadmeExample {
  source: string
  /** The lines of the ```text block that follows the example; none if there is no such block. */
  output: string[]
}

export function firstExample(readme: string): ReadmeExample {
  const fence = /^```ts\b[^\n]*\n(.*?)^```[ \t]*$/ms.exec(readme)
  if (!fence) throw new Error('README.md has no example: expected a block that begins with ```ts')
  const rest = readme.slice(fence.index + fence[0].length)
  const text = /^```(\w*)[^\n]*\n(.*?)^```[ \t]*$/ms.exec(rest)
  return {
    source: fence[1] ?? '',
    output: text?.[1] === 'text' ? (text[2] ?? '').split('\n').filter((line) => line.trim() !== '') : [],
  }
}

/**
 * The lines of `expected` that `actual` does not have, in this order. Ids, numbers and spaces may differ, other
 * lines may stand between, and a line of dots alone (`…`) is for the reader.
 */
export function missingLines(expected: string[], actual: string): string[] {
  const lines = actual.split('\n').map(shape)
  let from = 0
  return expected.filter((line) => {
    if (/^[\s.…]*$/.test(line)) return false
    const found = lines.indexOf(shape(line), from)
    if (found === -1) return true
    from = found + 1
    return false
  })
}

function shape(line: string): string {
  return line
    .replace(/\b(?=\w*\d)[\w-]{16,}\b/g, '#')
    .replace(/\d+(?:[.,:]\d+)*/g, '#')
    .replace(/\s+/g, ' ')
    .trim()
}
