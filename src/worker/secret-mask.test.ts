import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SecretMask } from './secret-mask.ts'

/** What each of these prints: quotes, spaces, slashes, a line break, letters beyond ASCII, a character of two units. */
const SECRETS = [
  'ghp_16C7e42F292c6912E7710c838347Ae178B4a',
  'p@ss w/o:rd?&=+%',
  `it's "quoted" $HOME \`x\` \\ back\\\\slash`,
  'schlüssel-😀-ключ',
  '-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n',
  '<a href="x">&amp;</a>',
]

const bash = (script: string, secret: string) =>
  execFileSync('bash', ['-c', script], { env: { ...process.env, S: secret }, encoding: 'utf8' })

/** Forms as programs write them. */
const FORMS: Record<string, (secret: string) => string> = {
  plain: (secret) => secret,
  'a URL component': encodeURIComponent,
  'a URL, in small letters': (secret) =>
    encodeURIComponent(secret).replaceAll(/%../g, (one) => one.toLowerCase()),
  'a form field': (secret) => new URLSearchParams({ a: secret }).toString().slice(2),
  'a URL that keeps its own characters': (secret) => encodeURI(secret),
  JSON: (secret) => JSON.stringify(secret).slice(1, -1),
  'JSON in JSON': (secret) => JSON.stringify(JSON.stringify(secret)).slice(3, -3),
  'JSON in ASCII': (secret) =>
    JSON.stringify(secret)
      .slice(1, -1)
      .replaceAll(/[^ -~]|[<>&']/g, (one) =>
        [...Array(one.length).keys()].map((i) => unicode(one, i)).join(''),
      ),
  base64: (secret) => Buffer.from(secret).toString('base64'),
  'base64 for URLs': (secret) => Buffer.from(secret).toString('base64url'),
  'basic authentication': (secret) => Buffer.from(`user:${secret}`).toString('base64'),
  'base64 of a longer text': (secret) => Buffer.from(`ab${secret}, and more`).toString('base64'),
  'base64 in lines': (secret) => bash('printf %s "some text before: $S" | base64 -w 20', secret),
  hexadecimal: (secret) => Buffer.from(secret).toString('hex'),
  'a word for the shell': (secret) => `'${secret.replaceAll("'", `'\\''`)}'`,
  'printf %q': (secret) => bash('printf %q "$S"', secret),
  'what set prints': (secret) => bash('set | grep -A5 ^S=', secret),
  'what sh -x prints': (secret) => bash('{ set -x; : "$S"; } 2>&1', secret),
  HTML: (secret) =>
    secret.replaceAll(
      /[&<>"']/g,
      (one) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[one] ?? '',
    ),
}

function unicode(text: string, i: number): string {
  return `\\u${text.charCodeAt(i).toString(16).padStart(4, '0')}`
}

describe('a secret is masked', () => {
  test.each(Object.entries(FORMS))('as %s', (_, write) => {
    const around = write('').length + '$\'\'"" '.length
    for (const secret of SECRETS) {
      const written = write(secret.trim())
      const masked = new SecretMask([secret]).text(`<${written}>`)
      expect(masked).toContain('***')
      // Nothing is left but quotes, and what belongs to the longer text it stood in.
      expect([masked, masked.replaceAll('***', '').length <= around + 2]).toEqual([masked, true])
    }
  })

  test('as each line of it that says something', () => {
    const mask = new SecretMask([SECRETS[4] as string])
    expect(mask.text('key: | \n  MIIEvQIBADANBgkq\n  hkiG9w0BAQEFAASC\n')).toBe('key: | \n  ***\n  ***\n')
  })

  test('the longest of several that begin alike', () => {
    expect(new SecretMask(['secret', 'secret-longer']).text('secret secret-longer secret-lo.')).toBe(
      '*** *** ***-lo.',
    )
  })

  test('a short one as it stands', () => {
    expect(new SecretMask(['ab', '']).text('xabx YWI=')).toBe('x***x YWI=')
  })
})

describe('in a stream', () => {
  const inPieces = (secrets: string[], text: string, cuts: number[]) => {
    const stream = new SecretMask(secrets).stream()
    const bytes = Buffer.from(text)
    const ends = [...cuts.map((cut) => cut % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]
    const pieces = ends.map((end, i) => stream.add(bytes.subarray(ends[i - 1] ?? 0, end)))
    return Buffer.concat([...pieces, stream.end()]).toString()
  }

  test('it makes no difference where the pieces end', () => {
    const words = fc.constantFrom(
      'token',
      'tok',
      'to',
      'k',
      '\\',
      '\\\\',
      'en\\',
      'tok\\en-ü',
      'tok%5Cen-',
      'dG9r',
      ' ',
      '\n',
    )
    const texts = fc.array(words).map((list) => list.join(''))
    fc.assert(
      fc.property(texts, fc.array(fc.nat()), (text, cuts) => {
        const secrets = ['token', 'tok\\en-ü']
        expect(inPieces(secrets, text, cuts)).toBe(new SecretMask(secrets).text(text))
      }),
      { numRuns: 500 },
    )
  })

  test('only what may begin a secret is held back', () => {
    const stream = new SecretMask(['hunter2-hunter2']).stream()
    const add = (text: string) => stream.add(Buffer.from(text)).toString()
    expect([add('Password: '), add('hun'), add('gry hunter2-'), add('hunter2\n'), add('h')]).toEqual([
      'Password: ',
      '',
      'hungry ',
      '***\n',
      '',
    ])
    expect(stream.end().toString()).toBe('h')
  })

  test('one that was cut off by the end is masked too', () => {
    expect(inPieces(['hunter2-hunter2'], 'it is hunter2-hun', [])).toBe('it is ***')
    expect(inPieces(['hunter2-hunter2'], 'it is hun', [])).toBe('it is hun')
  })

  test('without secrets it is passed on as it is', () => {
    const chunk = Buffer.from([0xff, 0, 0x80])
    expect(new SecretMask([]).stream().add(chunk)).toBe(chunk)
  })

  test('bytes that are no text stay what they are', () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    const stream = new SecretMask(['secret']).stream()
    expect(Buffer.concat([stream.add(bytes), stream.end()])).toEqual(bytes)
  })

  test('many ways to read a text take no longer than one', () => {
    const mask = new SecretMask([`${'\\'.repeat(20)}x`])
    expect(mask.text(`${'\\'.repeat(500)}y`)).toBe(`${'\\'.repeat(500)}y`)
  }, 10_000)
})
