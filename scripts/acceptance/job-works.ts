// Work for the tests of jobs: tasks that hang until they are stopped or end at once, and jobs made of them.
import type { JobHandle, JobOptions, TaskStatus } from '../../src/curfew.ts'
import { job, task } from '../../src/curfew.ts'
import type { World } from './world.ts'

/** `began`: the inputs of everything that was begun, in that order. */
export function worksOf(world: World) {
  const began: string[] = []
  const hang = task({
    name: 'hang',
    run: (id: string, { signal }) => {
      began.push(id)
      return world.clock.sleep('1h', signal)
    },
  })
  const quick = task({
    name: 'quick',
    run: (id: string) => {
      began.push(id)
      return id
    },
  })
  return { began, hang, quick, tasks: [hang, quick] }
}

/** Every workflow with those it depends on, as `{ a: '', b: 'a' }`; one with a `+` in front ends at once. */
export function jobOf(
  { hang, quick }: ReturnType<typeof worksOf>,
  entries: Record<string, string>,
  rest: Partial<JobOptions> = {},
) {
  const workflows = Object.entries(entries).map(([name, before]) => {
    const id = name.replace('+', '')
    const dependsOn = before.split(' ').filter(Boolean)
    return { id, task: name === id ? hang : quick, input: id, dependsOn }
  })
  return job({ stuckAfter: null, ...rest, workflows } as JobOptions)
}

export async function statuses(handle: JobHandle): Promise<Record<string, TaskStatus>> {
  return Object.fromEntries((await handle.workflows()).map(({ id, status }) => [id, status]))
}
