/** What people know a worker by. */
import { CurfewError } from './core/errors.ts'

export function checkLabels(labels: unknown): Record<string, string> {
  if (labels === undefined) return {}
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) throw wrongLabels()
  for (const value of Object.values(labels)) if (typeof value !== 'string') throw wrongLabels()
  return labels as Record<string, string>
}

function wrongLabels(): CurfewError {
  return new CurfewError('invalid_option', 'labels must be an object of texts: { zone: "a" }')
}
