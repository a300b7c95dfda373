import fc from 'fast-check'
import { Counter, Histogram, Registry } from 'prom-client'
import { expect, test } from 'vitest'
import { Tallies } from './tally.ts'

const BOUNDS = [0.01, 0.5, 1, 30]
const HISTOGRAM = { name: 'took_seconds', help: 'How long it took' }
const COUNTER = { name: 'ended_total', help: 'How many there were' }
const LABELS = ['queue', 'name']

const labels = fc.tuple(fc.constantFrom('default', 'a "b"\\\n'), fc.constantFrom('x', 'größe'))
const values = fc.oneof(fc.constantFrom(0, ...BOUNDS), fc.double({ min: 0, max: 100, noNaN: true }))

test('tallies are told as the library tells its own metrics, as text and as data', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(labels, values)), async (told) => {
      const [own, library] = [new Registry(), new Registry()]
      const tallies = new Tallies(own, { ...HISTOGRAM, labelNames: LABELS, bounds: BOUNDS }).countAs(COUNTER)
      const config = { labelNames: LABELS, registers: [library] }
      const histogram = new Histogram({ ...HISTOGRAM, ...config, buckets: BOUNDS })
      const counter = new Counter({ ...COUNTER, ...config })
      for (const [[queue, name], value] of told) {
        tallies.of(queue, name).observe(value)
        histogram.labels(queue, name).observe(value)
        counter.labels(queue, name).inc()
      }
      expect(await own.metrics()).toBe(await library.metrics())
      // Nobody here has examples.
      const plain = (metrics: object[]) =>
        JSON.parse(JSON.stringify(metrics).replaceAll('"exemplar":null,', ''))
      expect(plain(await own.getMetricsAsJSON())).toEqual(plain(await library.getMetricsAsJSON()))
    }),
  )
})
