/** What tests of programs that use curfew need: `import { VirtualClock } from 'curfew/testing'`. */
export { VirtualClock } from './virtual-clock.ts'
