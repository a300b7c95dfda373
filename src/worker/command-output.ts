/**
 * What a command prints: secrets taken out, the end of each stream kept, everything passed on as it comes. However much
 * it prints, only its tails stay in memory.
 */
import { OutputTail } from './output-tail.ts'
import type { SecretMask } from './secret-mask.ts'

export type OutputStream = 'stdout' | 'stderr'
export type OutputTexts = Record<OutputStream, string>
export type OnOutput = (stream: OutputStream, chunk: Buffer) => void

export class CommandOutput {
  readonly #maxBytes: number
  readonly #onOutput: OnOutput | undefined
  readonly #streams
  #closed = false

  constructor(maxBytes: number, mask: SecretMask, onOutput: OnOutput | undefined) {
    this.#maxBytes = maxBytes
    this.#onOutput = onOutput
    const stream = () => ({ tail: new OutputTail(maxBytes), masked: mask.stream() })
    this.#streams = { stdout: stream(), stderr: stream() }
  }

  add(stream: OutputStream, chunk: Buffer): void {
    if (!this.#closed) this.#keep(stream, this.#streams[stream].masked.add(chunk))
  }

  /** Nothing is kept any more: what may yet come is of processes that the command left behind. */
  close(): void {
    if (this.#closed) return
    for (const stream of ['stdout', 'stderr'] as const) this.#keep(stream, this.#streams[stream].masked.end())
    this.#closed = true
  }

  /** The last of each stream. */
  tails(maxBytes: number): OutputTexts {
    const { stdout, stderr } = this.#streams
    return { stdout: stdout.tail.text(maxBytes), stderr: stderr.tail.text(maxBytes) }
  }

  /** All that was kept, and whether there was more. */
  kept(): OutputTexts & { truncated: Record<OutputStream, boolean> } {
    const { stdout, stderr } = this.#streams
    const [out, error] = [stdout.tail.read(this.#maxBytes), stderr.tail.read(this.#maxBytes)]
    return { stdout: out.text, stderr: error.text, truncated: { stdout: out.isCut, stderr: error.isCut } }
  }

  #keep(stream: OutputStream, chunk: Buffer): void {
    if (chunk.length === 0) return
    this.#streams[stream].tail.add(chunk)
    this.#onOutput?.(stream, chunk)
  }
}
