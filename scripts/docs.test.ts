// What the documents show is true: their code fits the types, and what they link to is there.

import { execFile } from 'node:child_process'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { DefinitionError, graph, loadWorkflow, validateJob, validateWorkflow } from '../src/curfew.ts'
import { definitionKind } from '../src/definitions/definition-kind.ts'
import { validateMapreduce } from '../src/definitions/mapreduce.ts'

const root = path.join(import.meta.dirname, '..')
const pages = globSync(['*.md', 'docs/**/*.md', 'bench/*.md'], { cwd: root }).toSorted()

/** The ts blocks of a page are one program; each line stays where it stands, so that errors name the page's line. */
function programOf(page: string): string {
  let inside = false
  const lines = page.split('\n').map((line) => {
    if (line.startsWith('```')) {
      inside = /^```ts\b/.test(line)
      return ''
    }
    return inside ? line : ''
  })
  return `${lines.join('\n')}\nexport {}\n`
}

test('the code of every page fits the types', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-docs-'))
  try {
    await symlink(path.join(root, 'node_modules'), path.join(folder, 'node_modules'))
    await writeFile(path.join(folder, 'package.json'), JSON.stringify({ type: 'module' }))
    const files: string[] = []
    for (const page of pages) {
      const program = programOf(readFileSync(path.join(root, page), 'utf8'))
      if (program.trim() === 'export {}') continue
      const file = `${page.replaceAll('/', '.')}.ts`
      files.push(file)
      await writeFile(path.join(folder, file), program)
    }
    expect(files).toEqual(expect.arrayContaining(['README.md.ts', 'docs.tasks.md.ts']))
    const compilerOptions = {
      ...JSON.parse(readFileSync(path.join(root, 'tsconfig.json'), 'utf8')).compilerOptions,
      paths: {
        curfew: [path.join(root, 'src/curfew.ts')],
        'curfew/testing': [path.join(root, 'src/testing/testing.ts')],
      },
    }
    await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
    const tsc = path.join(root, 'node_modules/.bin/tsc')
    const problems = await promisify(execFile)(tsc, ['-p', folder, '--pretty', 'false']).then(
      () => '',
      (error: { stdout: string }) => error.stdout,
    )
    expect(problems).toBe('')
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

test('the README is short', () => {
  expect(readFileSync(path.join(root, 'README.md'), 'utf8').trimEnd().split('\n').length).toBeLessThan(150)
})

test.each(pages)('%s: what it links to is there', (page) => {
  const text = readFileSync(path.join(root, page), 'utf8').replaceAll(/^```.*?^```/gms, '')
  const missing = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target as string)
    .filter((target) => !/^\w+:/.test(target))
    .filter((target) => {
      const [file = '', anchor] = target.split('#')
      const where = file === '' ? path.join(root, page) : path.join(root, path.dirname(page), file)
      if (!existsSync(where)) return true
      return anchor !== undefined && !anchorsOf(readFileSync(where, 'utf8')).includes(anchor)
    })
  expect(missing).toEqual([])
})

function anchorsOf(page: string): string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .trim()
      .replaceAll(/\s/g, '-'),
  )
}

/** The blocks of a language, in their order. */
function blocksOf(page: string, language: string): string[] {
  const text = readFileSync(path.join(root, page), 'utf8')
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(
    ([, block = '']) => block,
  )
}

const VALIDATE = { workflow: validateWorkflow, job: validateJob, mapreduce: validateMapreduce }

test.each(pages)('%s: its YAML is a workflow, job or map-reduce without a problem', (page) => {
  const problems = blocksOf(page, 'yaml').flatMap(
    (block) => VALIDATE[definitionKind(block)](block, { file: page }).problems,
  )
  expect(problems).toEqual([])
})

test('the drawing is that of the first workflow in a file', () => {
  const [first = ''] = blocksOf('docs/workflows.md', 'yaml')
  expect(blocksOf('docs/workflows.md', 'mermaid')).toEqual([graph(loadWorkflow(first))])
})

test('what is said of the workflow with mistakes is what is told', () => {
  const file = 'examples/workflows/wrong.yml'
  const told = (() => {
    try {
      return loadWorkflow(readFileSync(path.join(root, file), 'utf8'), { file })
    } catch (error) {
      if (!(error instanceof DefinitionError)) throw error
      return error.message
    }
  })()
  expect(blocksOf('docs/workflows.md', 'text')).toContain(`${told}\n`)
})
