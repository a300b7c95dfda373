/** The tasks of a map-reduce as the store has them: what is told of a run whoever looks at it. */
import type { Client } from '../client/client.ts'
import { MAX_PAGE } from '../core/limits.ts'
import { isOwnRun } from '../core/own-work.ts'
import type { TaskEventView, TaskView } from '../curfew.ts'
import type { ItemOutput } from '../mapreduce/item-work.ts'
import { ITEM_TASK, MAPREDUCE_TASKS } from '../mapreduce/mapreduce-run.ts'

/** Events of so many tasks are asked for at a time. */
const AT_A_TIME = 20

/** What its phases, items and commands did; nothing where it is no map-reduce. */
export async function mapreduceEvents(client: Client, id: string): Promise<TaskEventView[]> {
  const tasks = isOwnRun(id) ? await tasksOf(client, id, MAPREDUCE_TASKS) : []
  const events: TaskEventView[] = []
  for (let i = 0; i < tasks.length; i += AT_A_TIME) {
    const some = tasks.slice(i, i + AT_A_TIME).map((task) => client.task(task.id).events())
    for (const found of await Promise.all(some)) events.push(...found)
  }
  return events
}

/** Its items so far, in the order in which they were begun. */
export async function itemsOf(
  client: Client,
  id: string,
): Promise<(TaskView & { output: ItemOutput | null })[]> {
  return (await tasksOf(client, id, [ITEM_TASK])) as (TaskView & { output: ItemOutput | null })[]
}

async function tasksOf(client: Client, id: string, names: readonly string[]): Promise<TaskView[]> {
  const found: TaskView[] = []
  let cursor: string | null = null
  do {
    const page: { tasks: TaskView[]; cursor: string | null } = await client.list({
      ...{ parent: id, limit: MAX_PAGE, ...(cursor !== null && { cursor }) },
    })
    found.push(...page.tasks.filter(({ name }) => names.includes(name)))
    cursor = page.cursor
  } while (cursor !== null)
  return found.reverse()
}
