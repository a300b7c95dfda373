// Work that does what its input says: how long it takes and how it ends.
import { task, workflow } from '../../src/curfew.ts'
import type { SynchronizationOptions, TransitionOptions } from '../../src/definitions/workflow.ts'
import type { World } from './world.ts'

/** Works for an hour. */
export const NEVER = { ms: 3_600_000 }

/** Follows its signal. */
export const workOf = ({ clock }: World) =>
  task({
    name: 'work',
    run: async ({ ms = 0, value = null, fails }: { ms?: number; value?: unknown; fails?: boolean }, ctx) => {
      if (ms > 0) await clock.sleep(ms, ctx.signal)
      if (fails) throw new Error('it broke')
      return value
    },
  })

/**
 * `read` does what each element of the input says; its branches are joined before `end`, which takes ten minutes and
 * gives back what was merged.
 */
export const joined = (
  rules: Omit<SynchronizationOptions<'fan'>, 'siblingGroup'>,
  more: {
    name?: string
    fan?: Pick<TransitionOptions, 'maxParallel'>
    readTimeout?: number
    actionTimeout?: number
  } = {},
) => {
  const { name = 'joined', fan = {}, readTimeout, actionTimeout = null } = more
  return workflow({
    name,
    actions: { work: { kind: 'task', execution: { timeout: actionTimeout } } },
    nodes: [
      { id: 'start' },
      {
        id: 'read',
        actionId: 'work',
        input: 'branch.item',
        ...(readTimeout !== undefined && { timeout: readTimeout }),
      },
      {
        id: 'end',
        actionId: 'work',
        input: { ms: 600_000, value: 'state.all' },
        timeout: null,
      },
    ],
    transitions: [
      { id: 'fan', from: 'start', to: 'read', foreach: { collection: 'input' }, ...fan },
      {
        id: 'join',
        from: 'read',
        to: 'end',
        synchronization: {
          siblingGroup: 'fan',
          merge: { target: 'state.all', strategy: 'collect' },
          ...rules,
        },
      },
    ],
  })
}
