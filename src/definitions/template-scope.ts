/** Which variables a text of a map-reduce may name, by phase and place. Known before anything runs, as far as can be. */
import { didYouMean } from './problem.ts'
import type { TemplatePath } from './template-path.ts'
import { formatPath } from './template-path.ts'

/** What may follow its name: anything, nothing, or one of these. */
type Parts = 'any' | 'none' | readonly string[]

/** Names that have a meaning somewhere, and where. Nothing else can be called by them. */
const MEANT: Record<string, string> = {
  item: 'in map.agent_template',
  item_file: 'in map.agent_template',
  item_id: 'in map.agent_template',
  item_index: 'in map.agent_template',
  attempt: 'in map.agent_template',
  map: 'in reduce and merge',
  failure: 'in on_failure',
  params: 'everywhere',
  args: 'everywhere',
}

export const RESERVED_NAMES: readonly string[] = Object.keys(MEANT)

/** `item_file` holds the item as JSON. */
const OF_ITEM: Record<string, Parts> = {
  item: 'any',
  item_file: 'none',
  item_id: 'none',
  item_index: 'none',
  attempt: 'none',
}
/** `results` is a file: the others are numbers. */
const OF_RESULTS: Record<string, Parts> = {
  map: ['results', 'successful', 'failed', 'timed_out', 'skipped', 'total'],
}
const OF_FAILURE: Record<string, Parts> = { failure: ['kind', 'message', 'exit_code', 'output'] }

export interface ScopeFault {
  message: string
  suggestion: string
  /** Nothing is called so anywhere. */
  isForeign?: true
}

export class TemplateScope {
  readonly #names: ReadonlyMap<string, Parts>
  /** Of the environment; null: not known, and then any name in capitals may be one. */
  readonly #environment: ReadonlySet<string> | null

  private constructor(names: ReadonlyMap<string, Parts>, environment: ReadonlySet<string> | null) {
    this.#names = names
    this.#environment = environment
  }

  /** What every text sees. `params`: names that are given, null where they are not known. */
  static of(params: Iterable<string> | null, environment: Iterable<string> | null): TemplateScope {
    const names = new Map<string, Parts>([
      ['params', params ? [...params] : 'any'],
      ['args', 'any'],
    ])
    return new TemplateScope(names, environment && new Set(environment))
  }

  withItem(): TemplateScope {
    return this.#with(OF_ITEM)
  }

  withResults(): TemplateScope {
    return this.#with(OF_RESULTS)
  }

  withFailure(): TemplateScope {
    return this.#with(OF_FAILURE)
  }

  /** Captured texts, variables of `env`. */
  withTexts(names: Iterable<string>): TemplateScope {
    return this.#with(Object.fromEntries(Array.from(names, (name) => [name, 'none' as const])))
  }

  fault(path: TemplatePath): ScopeFault | null {
    const [root, ...rest] = path
    const parts = this.#names.get(root)
    if (parts === undefined)
      return this.#mayBeEnvironment(root) ? this.#checkParts(path, 'none') : this.#unknown(root)
    return rest.length === 0 && parts === 'any' ? null : this.#checkParts(path, parts)
  }

  #mayBeEnvironment(root: string): boolean {
    return this.#environment ? this.#environment.has(root) : /^[A-Z_][A-Z0-9_]*$/.test(root)
  }

  #checkParts(path: TemplatePath, parts: Parts): ScopeFault | null {
    const [root, first, ...deeper] = path
    if (parts === 'any') return null
    if (parts === 'none') {
      if (first === undefined) return null
      return { message: `'${root}' is a text and has no parts`, suggestion: `Write \${${root}}.` }
    }
    const names = parts.length === 0 ? 'nothing was given' : `there are ${parts.join(', ')}`
    if (first === undefined || !parts.includes(String(first))) {
      const what =
        first === undefined ? `'${root}' alone says nothing` : `there is no '${first}' in '${root}'`
      return { message: what, suggestion: didYouMean(String(first ?? ''), parts) ?? `In '${root}' ${names}.` }
    }
    if (deeper.length === 0) return null
    const whole = formatPath([root, first])
    const what = root === 'map' && first === 'results' ? 'the path of a file' : 'a text'
    return { message: `${whole} is ${what} and has no parts`, suggestion: `Write ${whole}.` }
  }

  #unknown(root: string): ScopeFault {
    const known = [...this.#names.keys()]
    const meant = Object.hasOwn(MEANT, root) ? MEANT[root] : undefined
    if (meant !== undefined)
      return { message: `'${root}' is not known here`, suggestion: `It is known ${meant} alone.` }
    const near = didYouMean(root, [...known, ...(this.#environment ?? [])])
    const suggestion = near ?? `There are ${known.join(', ')}, and variables of the environment.`
    return { message: `there is no variable '${root}'`, suggestion, isForeign: true }
  }

  #with(more: Readonly<Record<string, Parts>>): TemplateScope {
    return new TemplateScope(new Map([...this.#names, ...Object.entries(more)]), this.#environment)
  }
}
