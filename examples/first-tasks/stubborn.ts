// A task that never looks at its signal and never lets go of the event loop. In a process of its own it can be
// killed all the same. That process imports this file, so the engine is opened in another one.

import { task } from '../../src/curfew.ts'

export const mineCoins = task({
  name: 'mine-coins',
  timeout: '2s',
  grace: '500ms',
  isolation: 'process',
  file: import.meta.url,
  run: (target: number) => {
    let nonce = 0
    while (nonce < target) nonce = (nonce + 1) % 1_000_000
    return nonce
  },
})
