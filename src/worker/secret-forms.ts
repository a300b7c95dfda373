/**
 * The ways in which a secret may be written: plain, URL, JSON, shell and HTML escapes, character by character and so
 * mixed as well; base64 at each of its three places in a longer text; hexadecimal.
 */

/**
 * A form, read from left to right: each place holds one of its texts. Texts are bytes as characters (latin1), as in the
 * output that is searched.
 */
export type SecretForm = readonly (readonly string[])[]

/** A shorter one would be found everywhere; such a secret is looked for as it stands. */
const MIN_PLACES = 4
/** A line of a longer secret, such as a key. */
const MIN_LINE = 8

export function secretForms(secret: string): SecretForm[] {
  const whole = secret.trim()
  if (whole === '') return []
  const lines = whole.split(/\r?\n/).map((line) => line.trim())
  const parts = lines.length === 1 ? [] : lines.filter((line) => line.length >= MIN_LINE)
  const bytes = Buffer.from(whole)
  const encoded = [hexForm(bytes), ...[0, 1, 2].map((before) => base64Form(bytes, before))]
  return [
    escapedForm(whole),
    ...parts.map(escapedForm),
    ...encoded.filter((form) => form.length >= MIN_PLACES),
  ]
}

function escapedForm(text: string): SecretForm {
  return [...text].map(escapesOf)
}

const NAMED_ESCAPES: Record<string, string> = {
  '\n': 'n',
  '\r': 'r',
  '\t': 't',
  '\b': 'b',
  '\f': 'f',
  '\v': 'v',
  '\x07': 'a',
  '\x1b': 'e',
}
const ENTITIES: Record<string, string[]> = {
  '&': ['&amp;'],
  '<': ['&lt;'],
  '>': ['&gt;'],
  '"': ['&quot;', '&#34;'],
  "'": ['&#39;', '&#x27;', '&apos;'],
}
/** As JSON in JSON, or a shell in a shell, has it. */
const BACKSLASHES = ['\\', '\\\\', '\\\\\\', '\\\\\\\\']

function escapesOf(character: string): string[] {
  const bytes = Buffer.from(character)
  const plain = bytes.toString('latin1')
  if (/^[A-Za-z0-9]$/.test(character)) return [plain]
  const each = (write: (byte: number) => string) => [...bytes].map(write).join('')
  const hex = (byte: number) => byte.toString(16).padStart(2, '0')
  const units = [...Array(character.length).keys()].map((i) => character.charCodeAt(i))
  const unicode = units.map((unit) => unit.toString(16).padStart(4, '0'))
  const named = NAMED_ESCAPES[character]
  return [
    plain,
    each((byte) => `%${hex(byte)}`),
    each((byte) => `%${hex(byte).toUpperCase()}`),
    each((byte) => `\\x${hex(byte)}`),
    each((byte) => `\\${byte.toString(8).padStart(3, '0')}`),
    ...BACKSLASHES.flatMap((before) => [
      before + plain,
      unicode.map((unit) => `${before}u${unit}`).join(''),
      unicode.map((unit) => `${before}u${unit.toUpperCase()}`).join(''),
      ...(named === undefined ? [] : [before + named]),
    ]),
    ...(character === ' ' ? ['+'] : []),
    ...(character === "'" ? [`'\\''`, `'"'"'`] : []),
    ...(ENTITIES[character] ?? []),
  ]
}

function hexForm(bytes: Buffer): SecretForm {
  return [...bytes.toString('hex')].map((digit) => [digit, digit.toUpperCase()])
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

/** As it stands in the code of a longer text, `before` bytes (by threes) into it: the characters that hold its bits. */
function base64Form(bytes: Buffer, before: number): SecretForm {
  const from = 8 * before
  const to = from + 8 * bytes.length
  const bitAt = (i: number) => ((bytes[(i - from) >> 3] ?? 0) >> (7 - ((i - from) & 7))) & 1
  const form: string[][] = []
  for (let start = from - (from % 6); start < to; start += 6) {
    let values = [0]
    for (let i = start; i < start + 6; i++) {
      const bits = i < from || i >= to ? [0, 1] : [bitAt(i)]
      values = values.flatMap((value) => bits.map((bit) => value * 2 + bit))
    }
    const isLast = start + 6 >= to
    form.push(values.flatMap((value) => base64Texts(ALPHABET[value] as string, isLast)))
  }
  return form
}

/** Either alphabet, and between two characters a line may end. */
function base64Texts(character: string, isLast: boolean): string[] {
  const url = { '+': '-', '/': '_' }[character]
  const texts = url === undefined ? [character] : [character, url]
  return isLast ? texts : texts.flatMap((text) => [text, `${text}\n`, `${text}\r\n`])
}
