// Agents that stay in memory while they wait, and agents that are evicted at every wait and replayed when they are
// woken: the same tests hold for both.

import type { OpenOptions } from '../../src/curfew.ts'
import { onEachStore } from './world.ts'

export type Residents = NonNullable<OpenOptions['residents']>

export function onEachStoreAndResidence(
  subject: string,
  suite: (test: Parameters<Parameters<typeof onEachStore>[1]>[0], residents: Residents) => void,
): void {
  onEachStore(`${subject}, resident`, (test) => suite(test, {}))
  onEachStore(`${subject}, evicted at every wait`, (test) => suite(test, { count: 0 }))
}
