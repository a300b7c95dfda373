/**
 * Protobuf by hand, for messages that every task sends. A message is built and read as a text of one character a byte,
 * which costs a fraction of what the library needs: it goes to bytes, or comes from them, in one piece. Only for what
 * is plain; texts beyond ASCII are left to the library.
 */

/** Of a field: its number and how its value is written. */
const VARINT = 0
const DOUBLE = 1
const LENGTH = 2

/** What is above it is written by nobody, and read as a negative number. */
const MOST_INT32 = 2 ** 31 - 1
const CHARACTERS = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code))
const BEYOND_ASCII = /[\u0080-\uffff]/

export function isPlain(text: string): boolean {
  return !BEYOND_ASCII.test(text)
}

export function bytesOf(message: string): Buffer {
  return Buffer.from(message, 'latin1')
}

/** A plain text, or a message inside another. */
export function textField(no: number, text: string): string {
  return tag(no, LENGTH) + varint(text.length) + text
}

/** A whole number that is not negative. */
export function countField(no: number, count: number): string {
  return tag(no, VARINT) + varint(count)
}

export function doubleField(no: number, value: number): string {
  return tag(no, DOUBLE) + doubleText(value)
}

function tag(no: number, type: number): string {
  return CHARACTERS[(no << 3) | type] as string
}

function varint(value: number): string {
  let text = ''
  let left = value
  for (; left > 127; left = Math.floor(left / 128)) text += CHARACTERS[(left % 128) | 128]
  return text + CHARACTERS[left]
}

const eightBytes = Buffer.alloc(8)

function doubleText(value: number): string {
  eightBytes.writeDoubleLE(value)
  return eightBytes.toString('latin1')
}

/** Goes through the fields of a message. What it cannot read it answers with null: that is the library's to judge. */
export class FieldReader {
  readonly #bytes: Buffer
  readonly #text: string
  #at = 0
  #end: number
  #from = 0
  #type = 0
  /** Of the field it is at. */
  no = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
    this.#text = bytes.toString('latin1')
    this.#end = bytes.length
  }

  /** To the next field, if there is one. */
  next(): boolean {
    if (this.#at >= this.#end) return false
    this.#from = this.#at
    const head = this.#varint()
    this.no = Math.floor(head / 8)
    this.#type = head % 8
    return true
  }

  /** Everything was read, and nothing was cut short. */
  get done(): boolean {
    return this.#at === this.#end
  }

  text(): string | null {
    const from = this.#toLength()
    for (let i = from; i < this.#at; i++) if ((this.#bytes[i] as number) > 127) return null
    return this.#type === LENGTH ? this.#text.slice(from, this.#at) : null
  }

  /** Over what comes next, if it is this. */
  passes(text: string): boolean {
    if (this.#at + text.length > this.#end || !this.#text.startsWith(text, this.#at)) return false
    this.#at += text.length
    return true
  }

  /** An int32 that is not negative. */
  count(): number | null {
    const value = this.#type === VARINT ? this.#varint() : Infinity
    return value <= MOST_INT32 ? value : null
  }

  double(): number | null {
    if (this.#type !== DOUBLE || this.#at + 8 > this.#end) return null
    this.#at += 8
    return this.#bytes.readDoubleLE(this.#at - 8)
  }

  /** A message inside this one; null where `read` answers that or leaves something unread. */
  message<Message>(read: () => Message | null): Message | null {
    const from = this.#toLength()
    const to = this.#at
    const [field, end] = [this.#from, this.#end]
    if (to > end) return null
    this.#at = from
    this.#end = to
    const message = read()
    const whole = this.#at === to
    this.#at = to
    this.#end = end
    this.#from = field
    return whole ? message : null
  }

  /** Over a text or a message; not if it is something else. */
  skip(): boolean {
    this.#toLength()
    return this.#type === LENGTH
  }

  /** The field that was just read, as it stands in the message. */
  get bytes(): Buffer {
    return this.#bytes.subarray(this.#from, this.#at)
  }

  /** Over a value that has a length; answers where it begins. */
  #toLength(): number {
    const length = this.#type === LENGTH ? this.#varint() : Infinity
    const from = this.#at
    this.#at = Math.min(from + length, this.#end + 1)
    return from
  }

  /** One that has no end leads past the end of the message. */
  #varint(): number {
    let value = 0
    for (let scale = 1; this.#at < this.#end && scale < MOST; scale *= 128) {
      const byte = this.#bytes[this.#at++] as number
      value += (byte & 127) * scale
      if (byte < 128) return value
    }
    this.#at = this.#end + 1
    return 0
  }
}

/** Numbers above it are written by nobody. */
const MOST = 2 ** 49
