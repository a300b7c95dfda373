/** Lists as PostgreSQL reads them; several times faster than what pg makes of a JavaScript array. */

const NEEDS_ESCAPE = /["\\]/
const ESCAPED = /["\\]/g

type Value = string | number | null

export function arrayLiteral(values: readonly Value[]): string {
  return literalOf(values, (value) => value)
}

/** One field of every row. */
export function arrayOf<Row>(rows: readonly Row[], field: keyof Row): string {
  return literalOf(rows, (row) => row[field] as Value)
}

function literalOf<Row>(rows: readonly Row[], fieldOf: (row: Row) => Value): string {
  let text = '{'
  // Rows of one batch often have the same: most of them are of one claim.
  let last: Value = null
  let lastText = 'NULL'
  for (let i = 0; i < rows.length; i++) {
    const value = fieldOf(rows[i] as Row)
    if (value !== last) {
      last = value
      lastText = textOf(value)
    }
    text += i > 0 ? `,${lastText}` : lastText
  }
  return `${text}}`
}

function textOf(value: Value | undefined): string {
  if (typeof value === 'number') return String(value)
  if (value === null || value === undefined) return 'NULL'
  return `"${NEEDS_ESCAPE.test(value) ? value.replace(ESCAPED, '\\$&') : value}"`
}
