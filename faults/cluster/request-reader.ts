/** Requests in the bytes of one HTTP/1.1 connection, as their client sends them. */

interface ReadRequest {
  path: string
  /** All of it; null when it has only begun. */
  raw: Buffer | null
}

const HEAD_ENDS = Buffer.from('\r\n\r\n')
const LAST_CHUNK = Buffer.from('0\r\n\r\n')

export class RequestReader {
  #bytes = Buffer.alloc(0)
  #begun = false

  /** What these bytes begin and end. */
  read(bytes: Buffer): ReadRequest[] {
    this.#bytes = Buffer.concat([this.#bytes, bytes])
    const found: ReadRequest[] = []
    for (;;) {
      const headLength = this.#bytes.indexOf(HEAD_ENDS) + HEAD_ENDS.length
      if (headLength < HEAD_ENDS.length) return found
      const head = this.#bytes.subarray(0, headLength).toString('latin1')
      const path = head.split(' ', 2)[1] ?? ''
      if (!this.#begun) found.push({ path, raw: null })
      this.#begun = true
      const length = this.#lengthOf(head, headLength)
      if (length === null || this.#bytes.length < length) return found
      found.push({ path, raw: Buffer.from(this.#bytes.subarray(0, length)) })
      this.#bytes = this.#bytes.subarray(length)
      this.#begun = false
    }
  }

  /** Null while it cannot be told. */
  #lengthOf(head: string, headLength: number): number | null {
    const told = /^content-length: (\d+)/im.exec(head)
    if (told) return headLength + Number(told[1])
    if (!/^transfer-encoding: chunked/im.test(head)) return headLength
    // A client waits for the answer before it sends the next one, so that the last chunk is the end of what there is.
    const { length } = this.#bytes
    return this.#bytes.subarray(length - LAST_CHUNK.length).equals(LAST_CHUNK) ? length : null
  }
}
