/**
 * Takes secrets out of what leaves the worker, in whatever form they are written (secret-forms.ts), also when one comes
 * in pieces: of a stream it holds back only what may be the beginning of one.
 */
import type { SecretForm } from './secret-forms.ts'
import { secretForms } from './secret-forms.ts'

const MASK = '***'
/** Places of a form that pick out where to look closer. */
const PROBE_PLACES = 3
/** Of a secret that was cut off by the end of the output: with fewer places than this it says nothing. */
const MIN_CUT_PLACES = 4

export class SecretMask {
  readonly #forms: readonly SecretForm[]
  /** Null when there is nothing to hide. */
  readonly #probe: RegExp | null
  /** So many characters before the end, the probe may find nothing although a form begins there. */
  readonly #probeLength: number

  constructor(secrets: readonly string[]) {
    this.#forms = [...new Set(secrets)].flatMap(secretForms)
    const probes = this.#forms.map((form) => form.slice(0, PROBE_PLACES))
    this.#probe = probes.length === 0 ? null : new RegExp(probes.map(probeSource).join('|'), 'g')
    this.#probeLength = Math.max(0, ...probes.map(longest))
  }

  text(text: string): string {
    if (!this.#probe) return text
    const { done } = this.scan(Buffer.from(text).toString('latin1'), true)
    return Buffer.from(done, 'latin1').toString('utf8')
  }

  stream(): SecretStream {
    return new SecretStream(this)
  }

  get isEmpty(): boolean {
    return this.#probe === null
  }

  /** `held`: what may go on to be a secret, unless there is no more to come. Bytes as characters (latin1). */
  scan(text: string, isLast: boolean): { done: string; held: string } {
    let done = ''
    let from = 0
    for (let at = this.#next(text, 0); at !== -1; at = this.#next(text, at)) {
      const found = this.#longestAt(text, at)
      if (found.isCut && !isLast) return { done: done + text.slice(from, at), held: text.slice(at) }
      const end = found.isCut && found.cutPlaces >= MIN_CUT_PLACES ? text.length : found.end
      if (end === -1) at++
      else {
        done += text.slice(from, at) + MASK
        from = end
        at = end
      }
    }
    return { done: done + text.slice(from), held: '' }
  }

  /** Where to look next; -1 at the end. */
  #next(text: string, from: number): number {
    const probe = this.#probe
    if (!probe || from >= text.length) return -1
    probe.lastIndex = from
    const found = probe.exec(text)?.index ?? text.length
    const at = Math.min(found, Math.max(from, text.length - this.#probeLength))
    return at >= text.length ? -1 : at
  }

  #longestAt(text: string, at: number): Found {
    const found: Found = { end: -1, isCut: false, cutPlaces: 0 }
    for (const form of this.#forms) {
      const one = matchAt(form, text, at)
      found.end = Math.max(found.end, one.end)
      found.isCut ||= one.isCut
      found.cutPlaces = Math.max(found.cutPlaces, one.cutPlaces)
    }
    return found
  }
}

export class SecretStream {
  readonly #mask: SecretMask
  #held = ''

  constructor(mask: SecretMask) {
    this.#mask = mask
  }

  add(chunk: Buffer): Buffer {
    if (this.#mask.isEmpty) return chunk
    const { done, held } = this.#mask.scan(this.#held + chunk.toString('latin1'), false)
    this.#held = held
    return Buffer.from(done, 'latin1')
  }

  end(): Buffer {
    const { done } = this.#mask.scan(this.#held, true)
    this.#held = ''
    return Buffer.from(done, 'latin1')
  }
}

interface Found {
  /** After the longest that begins here; -1 when none does. */
  end: number
  /** The text ends in the middle of one. */
  isCut: boolean
  /** How many places of it there are. */
  cutPlaces: number
}

/** All ways at once, so that it takes no longer for a form that can be read in many. */
function matchAt(form: SecretForm, text: string, at: number): Found {
  const found: Found = { end: -1, isCut: false, cutPlaces: 0 }
  let ends = [at]
  for (const [place, texts] of form.entries()) {
    const next = new Set<number>()
    for (const end of ends) {
      for (const one of texts) {
        if (text.startsWith(one, end)) next.add(end + one.length)
        else if (end + one.length > text.length && one.startsWith(text.slice(end))) {
          found.isCut = true
          found.cutPlaces = place
        }
      }
    }
    if (next.size === 0) return found
    ends = [...next]
  }
  found.end = Math.max(...ends)
  return found
}

function probeSource(places: SecretForm): string {
  return places.map((texts) => `(?:${texts.map(quoted).join('|')})`).join('')
}

function quoted(text: string): string {
  return text.replaceAll(/[^A-Za-z0-9]/g, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`)
}

function longest(places: SecretForm): number {
  return places.reduce((sum, texts) => sum + Math.max(...texts.map(({ length }) => length)), 0)
}
