/** Certificates in PEM, looked at before anything stands on them: Node takes what holds none without a word. */
import { X509Certificate } from 'node:crypto'
import { CurfewError } from '../core/errors.ts'

/** `names`: those of `tls` that must hold certificates, where they are given. */
export function checkCertificates<Tls extends object>(
  tls: Tls | undefined,
  names: readonly (keyof Tls & string)[],
): void {
  for (const name of names) {
    const text = tls?.[name]
    if (text === undefined) continue
    try {
      new X509Certificate(text as string)
    } catch (error) {
      throw unusable(`tls.${name} holds no certificate`, error)
    }
  }
}

export function unusable(what: string, error: unknown): CurfewError {
  return new CurfewError('invalid_option', `${what}: ${(error as Error).message}`, {
    hint: 'It must be the text of a PEM file, such as begins with -----BEGIN CERTIFICATE-----.',
    cause: error,
  })
}
