import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { stringify } from 'yaml'
import { workflowModels } from './fixtures/workflow-arbitraries.ts'
import { workflowText } from './fixtures/workflow-text.ts'
import { job, validateJob } from './job.ts'
import { DefinitionError, formatProblem } from './problem.ts'
import { validateWorkflow, workflow } from './workflow.ts'
import { graph } from './workflow-graph.ts'
import { contentHash } from './workflow-model.ts'
import { planWorkflow } from './workflow-plan.ts'

describe('any valid workflow', () => {
  test('reads back from its text, as YAML and as JSON', () => {
    fc.assert(
      fc.property(workflowModels, fc.constantFrom('yaml' as const, 'json' as const), (model, format) => {
        const { definition, problems } = validateWorkflow(workflowText(model, format))
        expect(problems.filter(({ severity }) => severity === 'error').map(formatProblem)).toEqual([])
        expect(definition!.model).toEqual(model)
        expect(definition!.hash).toBe(contentHash(model))
      }),
      { numRuns: 150 },
    )
  })

  test('survives the store, can be planned and drawn', () => {
    fc.assert(
      fc.property(workflowModels, (model) => {
        const stored = JSON.parse(JSON.stringify(model))
        expect(contentHash(stored)).toBe(contentHash(model))
        const plan = planWorkflow(stored)
        for (const { group } of model.transitions) if (group) expect(plan.joins(group)).toHaveLength(1)
        expect(graph({ model: stored }).split('\n').length).toBeGreaterThan(model.nodes.length)
      }),
      { numRuns: 100 },
    )
  })
})

/** Words of the format in random places, so that readers get beyond the first key. */
const word = fc.constantFrom(
  ...[
    'name',
    'nodes',
    'transitions',
    'actions',
    'id',
    'from',
    'to',
    'a',
    'b',
    'fan',
    'kind',
    'task',
    'shell',
    'argv',
  ],
  ...[
    'http_request',
    'url',
    'synchronization',
    'sibling_group',
    'strategy',
    'm_of_n',
    'all',
    'merge',
    'target',
    'timeout',
  ],
  ...[
    'timeout_ms',
    'foreach',
    'collection',
    'spawn_count',
    'loop',
    'input',
    'output',
    'state.x',
    '5m',
    'workflows',
    'start',
  ],
  ...[
    'action_id',
    'execution',
    'implementation',
    'depends_on',
    'run_if',
    '__proto__',
    'constructor',
    'state.',
    'input.x +',
  ],
)
const randomJson = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    word,
    fc.constantFrom(null, true, 0, 1, -1, 1.5, 1e300, ''),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(word, tie('value'), { maxKeys: 6, noNullPrototype: true }),
    fc.jsonValue({ maxDepth: 2 }),
  ),
})).value

const outline = fc.record(
  {
    name: fc.oneof(word, randomJson),
    start: word,
    timeout: randomJson,
    actions: fc.dictionary(word, randomJson, { noNullPrototype: true }),
    nodes: fc.array(
      fc.oneof(randomJson, fc.record({ id: word, action_id: word, input: randomJson, output: randomJson })),
    ),
    transitions: fc.array(
      fc.oneof(
        randomJson,
        fc.record(
          {
            id: word,
            from: word,
            to: word,
            condition: word,
            foreach: randomJson,
            spawn_count: fc.nat(3),
            sibling_group: word,
            synchronization: randomJson,
          },
          { requiredKeys: ['from', 'to'] },
        ),
      ),
    ),
    workflows: fc.array(
      fc.oneof(
        randomJson,
        fc.record({ id: word, task: word, depends_on: fc.array(word), workflow: randomJson }),
      ),
    ),
  },
  { requiredKeys: [] },
)

describe('validation never throws', () => {
  const check = (text: string) => {
    for (const { definition, problems } of [validateWorkflow(text), validateJob(text)]) {
      expect(definition === null).toBe(problems.some(({ severity }) => severity === 'error'))
      for (const { line, column } of problems) expect([line! >= 1, column! >= 1]).toEqual([true, true])
    }
  }

  test('on any JSON', () => {
    fc.assert(
      fc.property(fc.oneof(randomJson, outline), (json) => check(JSON.stringify(json))),
      { numRuns: 500 },
    )
  })

  test('on any YAML', () => {
    fc.assert(
      fc.property(outline, (json) => check(stringify(json))),
      { numRuns: 300 },
    )
  })

  test('on any text', () => {
    const pieces = [
      'name: w\n',
      'nodes:\n',
      '  - id: a\n',
      '{',
      '}',
      '[',
      ']',
      '&x ',
      '*x',
      '!t ',
      '? ',
      ': ',
      '- ',
      '|\n',
      '"',
      "'",
      '#',
      '%',
      '---\n',
      '\t',
      '\u0000',
      '\ud800',
      '<<: ',
    ]
    const text = fc.array(fc.oneof(fc.constantFrom(...pieces), fc.string({ maxLength: 5 })), {
      maxLength: 30,
    })
    fc.assert(
      fc.property(text, (parts) => check(parts.join(''))),
      { numRuns: 500 },
    )
  })

  test('on any object: nothing but a DefinitionError', () => {
    const camel = (key: string) => key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
    const respell = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(respell)
      if (typeof value !== 'object' || value === null) return value
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [camel(key), respell(item)]))
    }
    fc.assert(
      fc.property(fc.oneof(randomJson, outline, fc.anything()), (value) => {
        for (const define of [workflow, job] as ((definition: never) => unknown)[]) {
          try {
            define(respell(value) as never)
          } catch (error) {
            expect(error).toBeInstanceOf(DefinitionError)
          }
        }
      }),
      { numRuns: 500 },
    )
  })
})
