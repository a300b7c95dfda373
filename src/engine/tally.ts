/**
 * What is counted for every task, thousands of times a second. The library finds the labels of a value anew each time
 * it is told one; here whoever counts has the tally of its labels in hand. To the registry it is a metric like its own.
 */
import type { Metric, Registry } from 'prom-client'

interface Description {
  name: string
  help: string
}

interface Value {
  metricName?: string
  labels: Record<string, string | number>
  value: number
}

export class Tally {
  readonly labels: Readonly<Record<string, string>>
  readonly #bounds: readonly number[]
  /** Of each bound: values up to it that are above the one before. The last: those above all. */
  readonly #counts: number[]
  sum = 0
  count = 0

  constructor(labels: Record<string, string>, bounds: readonly number[]) {
    this.labels = labels
    this.#bounds = bounds
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0)
  }

  observe(value: number): void {
    let place = 0
    while (place < this.#bounds.length && value > (this.#bounds[place] as number)) place++
    this.#counts[place] = (this.#counts[place] as number) + 1
    this.sum += value
    this.count++
  }

  *values(name: string): Iterable<Value> {
    const { labels, sum, count } = this
    let upTo = 0
    for (const [place, bound] of [...this.#bounds, '+Inf'].entries()) {
      upTo += this.#counts[place] as number
      yield { metricName: `${name}_bucket`, labels: { le: bound, ...labels }, value: upTo }
    }
    yield { metricName: `${name}_sum`, labels, value: sum }
    yield { metricName: `${name}_count`, labels, value: count }
  }
}

/** A histogram. */
export class Tallies {
  readonly #registry: Registry
  readonly #labelNames: readonly string[]
  readonly #bounds: readonly number[]
  readonly #tallies = new Map<string, Tally>()

  constructor(
    registry: Registry,
    { name, help, labelNames, bounds }: Description & { labelNames: string[]; bounds: readonly number[] },
  ) {
    this.#registry = registry
    this.#labelNames = labelNames
    this.#bounds = bounds
    this.#register('histogram', { name, help }, (tally) => tally.values(name))
  }

  /** How many values there were is also a counter. */
  countAs({ name, help }: Description): this {
    this.#register('counter', { name, help }, ({ labels, count }) => [{ labels, value: count }])
    return this
  }

  /** `values`: of the labels, in the order of their names. */
  of(...values: string[]): Tally {
    const key = values.join('\u0000')
    const known = this.#tallies.get(key)
    if (known) return known
    const labels = Object.fromEntries(this.#labelNames.map((name, i) => [name, values[i] as string]))
    const tally = new Tally(labels, this.#bounds)
    this.#tallies.set(key, tally)
    return tally
  }

  #register(
    type: 'histogram' | 'counter',
    { name, help }: Description,
    valuesOf: (tally: Tally) => Iterable<Value>,
  ): void {
    const get = async () => ({
      ...{ name, help, type, aggregator: 'sum' },
      values: [...this.#tallies.values()].flatMap((tally) => [...valuesOf(tally)]),
    })
    this.#registry.registerMetric({ name, get } as unknown as Metric)
  }
}
