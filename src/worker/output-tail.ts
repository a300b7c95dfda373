/** Each costs more than what it may hold, a single byte. */
const MAX_CHUNKS = 1_000

/** The end of a stream, bounded: what it says last is what one wants to know. */
export class OutputTail {
  readonly #maxBytes: number
  #chunks: Buffer[] = []
  #bytes = 0
  #dropped = false

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
    // Seldom, so that many small chunks cost no more than a few large ones.
    if (this.#chunks.length > MAX_CHUNKS) this.#joined()
    if (this.#bytes <= 2 * this.#maxBytes) return
    this.#dropped = true
    this.#keep(Buffer.from(this.#joined().subarray(-this.#maxBytes)))
  }

  text(maxBytes: number): string {
    return this.read(maxBytes).text
  }

  /**
   * Its last bytes, from a whole character on; cut, it begins with an ellipsis. As JSON it takes little more than half
   * as much again.
   */
  read(maxBytes: number): { text: string; isCut: boolean } {
    for (let bytes = Math.min(maxBytes, this.#maxBytes); ; bytes = bytes >> 1) {
      const read = this.#decode(bytes)
      if (bytes === 0 || Buffer.byteLength(JSON.stringify(read.text)) <= 1.5 * maxBytes + 8) return read
    }
  }

  #decode(bytes: number): { text: string; isCut: boolean } {
    const all = this.#joined()
    if (!this.#dropped && all.length <= bytes) return { text: all.toString('utf8'), isCut: false }
    let from = Math.max(0, all.length - bytes)
    for (let skipped = 0; skipped < 3 && ((all[from] ?? 0) & 0xc0) === 0x80; skipped++) from++
    return { text: `…${all.toString('utf8', from)}`, isCut: true }
  }

  #joined(): Buffer {
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks)
    this.#keep(all)
    return all
  }

  #keep(all: Buffer): void {
    this.#chunks = [all]
    this.#bytes = all.length
  }
}
