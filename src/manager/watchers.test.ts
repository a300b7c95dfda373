import { expect, test } from 'vitest'
import { Watchers } from './watchers.ts'

function watching(...ids: string[]) {
  const watchers = new Watchers()
  const told: string[] = []
  for (const id of ids) watchers.add(id, (news) => told.push(`${id} ${news}`))
  return { watchers, told }
}

test('whoever watches a piece of work is told of it, of what is below it, and of nothing else', () => {
  const { watchers, told } = watching('job', 'agent', 'task', 'other')
  watchers.touched([{ id: 'task', parentId: 'agent', rootId: 'job' }])
  expect(told.toSorted()).toEqual(['agent below', 'job below', 'task own'])
})

test.each([[['job', 'task']], [['task', 'job']], [['task', 'job', 'task']]])(
  'a commit of %j tells of what is below, whatever it says of the work itself',
  (ids) => {
    const { watchers, told } = watching('job')
    watchers.touched(ids.map((id) => (id === 'job' ? { id } : { id, parentId: 'job', rootId: 'job' })))
    expect(told).toEqual(['job below'])
  },
)

test('a root that names itself is not below itself', () => {
  const { watchers, told } = watching('agent')
  watchers.touched([{ id: 'agent', parentId: null, rootId: 'agent' }])
  expect(told).toEqual(['agent own'])
})

test('those who have stopped watching are told nothing, and nobody is left', () => {
  const { watchers, told } = watching()
  const stop = [watchers.add('a', () => told.push('one')), watchers.add('a', () => told.push('two'))]
  stop[0]?.()
  watchers.touched([{ id: 'a' }])
  expect([told, watchers.none]).toEqual([['two'], false])
  stop[1]?.()
  expect(watchers.none).toBe(true)
})
