import { expect, test } from 'vitest'
import { definitionKind } from './definition-kind.ts'

test.each([
  ['name: a\nnodes: [{ id: n }]', 'workflow'],
  ['name: a\nworkflows: []', 'job'],
  ['{"name":"a","workflows":[{"id":"x"}]}', 'job'],
  ['{"name":"a","nodes":[{"id":"workflows"}]}', 'workflow'],
  ['name: a\nnodes: [{ id: n, input: { workflows: [] } }]', 'workflow'],
  ['name: a\ndescription: |\n  workflows: none\nnodes: [{ id: n }]', 'workflow'],
  ['mode: mapreduce\nmap: {}', 'mapreduce'],
  ['a: [', 'workflow'],
  ['', 'workflow'],
  ['- 1', 'workflow'],
])('%j is a %s', (text, kind) => {
  expect(definitionKind(text)).toBe(kind)
})
