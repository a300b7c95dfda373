// Here and not in src, as the rules are about the whole repository and nothing of them is published.

import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { arrows, findWrongImports, importsOf } from './import-arrows.ts'
import { splitSource } from './source-text.ts'
import {
  checkFile,
  checkRepository,
  findAmbientTime,
  findBadName,
  findEmptyCatches,
  findForeignPackages,
  findIdlePatterns,
  findLongFile,
  findUnfinished,
  findUnrunTests,
} from './tidy.ts'

test('the repository is tidy', () => {
  expect(checkRepository(path.join(import.meta.dirname, '..'))).toEqual([])
})

describe('import arrows', () => {
  test.each([
    ['src/store/rows.ts', `import { x } from '../engine/funnel.ts'`],
    ['src/core/id.ts', `import type { Row } from '../store/rows.ts'`],
    ['src/core/id.ts', `import { z } from 'zod'`],
    ['src/worker/run.ts', `export * from '../store/rows.ts'`],
    ['src/worker/run.ts', `import {\n  a,\n  b,\n} from\n  '../store/rows.ts'`],
    ['src/worker/run.ts', `const rows = await import('../store/rows.ts')`],
    ['src/worker/run.ts', `const file = new URL('../store/rows.ts', import.meta.url)`],
    ['src/engine/sqlite/funnel.ts', `import '../../manager/watcher.ts'`],
    ['src/testing/virtual-clock.ts', `import { Curfew } from '../curfew.ts'`],
    ['src/curfew.ts', `import { gate } from './gate/gate.ts'`],
    ['src/engine/funnel.ts', `import { startPostgres } from '../../scripts/postgres/postgres.ts'`],
    ['src/elsewhere/thing.ts', `import { x } from '../core/id.ts'`],
    ['src/extra.ts', `import { x } from './core/id.ts'`],
  ])('in %s, %j is refused', (file, source) => {
    expect(findWrongImports(file, source)).toHaveLength(1)
    expect(checkFile(file, source)).not.toEqual([])
  })

  test.each([
    ['src/store/rows.ts', `import { x } from '../core/id.ts'`],
    ['src/store/postgres/claim.ts', `import { x } from '../rows.ts'`],
    ['src/core/id.ts', `import { randomUUID } from 'node:crypto'`],
    ['src/store/rows.ts', `import { Kysely } from 'kysely'`],
    ['src/store/rows.ts', `// import { x } from '../engine/funnel.ts'`],
    ['src/store/rows.ts', `const text = "import { x } from '../engine/funnel.ts'"`],
    ['src/cli/run.ts', `import { Curfew } from '../curfew.ts'`],
    ['src/curfew.ts', `import { Manager } from './manager/manager.ts'`],
    ['src/store/rows.test.ts', `import { x } from '../engine/funnel.ts'`],
  ])('in %s, %j is fine', (file, source) => {
    expect(checkFile(file, source)).toEqual([])
  })

  test('every arrow ends at a part that exists in the table', () => {
    const names = Object.keys(arrows)
    expect(
      Object.values(arrows)
        .flat()
        .filter((name) => !names.includes(name)),
    ).toEqual([])
  })

  test('a URL of a server is not an import', () => {
    expect(importsOf(`new URL('http://localhost')`)).toEqual([])
  })
})

describe('ambient time and randomness', () => {
  test.each([
    'const now = Date.now()',
    'const clock = { now: Date.now }',
    'const now = new Date()',
    'const now = new Date( )',
    'const now = new Date',
    'setTimeout(stop, 5)',
    'globalThis.setTimeout (stop, 5)',
    'setInterval(stop, 5)',
    'setImmediate(stop)',
    'const dice = Math.random()',
    'const id = randomUUID()',
    'const id = crypto.randomUUID()',
    'const token = randomBytes(16)',
    'const now = performance.now()',
    'const now = process.hrtime.bigint()',
    `import { setTimeout as sleep } from 'node:timers/promises'`,
    'const text = `at ${Date.now()}`',
  ])('%j is refused in src, and nowhere else', (source) => {
    expect(findAmbientTime('src/engine/funnel.ts', source)).toHaveLength(1)
    expect(checkFile('src/engine/funnel.ts', source)).toHaveLength(1)
    expect(checkFile('src/core/system-clock.ts', source)).toEqual([])
    expect(checkFile('src/engine/funnel.test.ts', source)).toEqual([])
    expect(checkFile('src/testing/virtual-clock.ts', source)).toEqual([])
    expect(checkFile('bench/main.ts', source)).toEqual([])
  })

  test.each([
    'const date = new Date(row.dueAt)',
    'clearTimeout(timer)',
    '// like Date.now(), but the store’s',
    `throw new Error('use the clock, not Date.now()')`,
    'const pattern = /Date.now()/',
  ])('%j is fine', (source) => {
    expect(checkFile('src/engine/funnel.ts', source)).toEqual([])
  })
})

describe('loose ends', () => {
  test.each([
    'try { work() } catch {}',
    'try { work() } catch (error) {\n}',
    'try { work() } catch { /* ignored */ }',
    'try { work() } catch {\n  // never happens\n}',
    'work().catch(() => {})',
    'work().catch((error) => undefined)',
  ])('%j has an empty catch', (source) => {
    expect(findEmptyCatches('src/engine/funnel.ts', source)).toHaveLength(1)
    expect(checkFile('bench/main.ts', source)).toHaveLength(1)
  })

  test('a catch that does something is fine', () => {
    expect(findEmptyCatches('a.ts', 'try { work() } catch (error) { report(error) }')).toEqual([])
    expect(findEmptyCatches('a.ts', 'work().catch((error) => report(error))')).toEqual([])
    expect(findEmptyCatches('a.ts', 'const row = await read().catch(() => null)')).toEqual([])
  })

  test.each(['test.only(', 'describe.skip(', 'it.todo(', 'test.only.each('])('%j is refused', (call) => {
    const source = `${call}'x', () => {})`
    expect(findUnrunTests('src/a.test.ts', source)).toHaveLength(1)
    expect(checkFile('scripts/a.test.ts', source)).toHaveLength(1)
    expect(checkFile('scripts/a.ts', 'rows.skip(3)')).toEqual([])
  })

  test.each([
    'expect(x).toMatchObject({ message: /no folder/ })',
    'await expect(x).rejects.toMatchObject([1, /no\\/folder/i, false])',
    'expect(f(x)).toMatchObject({\n  a: { b: [g(1), /x/] },\n})',
  ])('%j cannot fail, and is refused', (source) => {
    expect(findIdlePatterns('src/a.test.ts', source)).toHaveLength(1)
    expect(checkFile('src/a.test.ts', source)).toHaveLength(1)
  })

  test.each([
    'expect(x).toMatchObject({ message: expect.stringMatching(/no folder/) })',
    'expect(x).toEqual({ message: /no folder/ })',
    'expect(x).toMatchObject({ rate: a / b / c })',
    'expect(x).toMatchObject({ a: 1 })\nexpect([/x/, 1]).toBe(y)',
  ])('%j is fine', (source) => {
    expect(checkFile('src/a.test.ts', source)).toEqual([])
  })

  test.each(['// TODO: later', '/* FIXME */', 'work() // TODO'])('%j is refused', (source) => {
    expect(findUnfinished('scripts/a.ts', source)).toHaveLength(1)
    expect(checkFile('scripts/a.ts', source)).toHaveLength(1)
  })

  test('a file has at most 450 lines', () => {
    expect(findLongFile('scripts/a.ts', 'x\n'.repeat(450))).toEqual([])
    expect(findLongFile('scripts/a.ts', 'x\n'.repeat(451))).toHaveLength(1)
    expect(checkFile('scripts/a.ts', 'x\n'.repeat(451))).toHaveLength(1)
  })

  test('a problem is told with its line', () => {
    expect(checkFile('scripts/a.ts', '\n// fine\n// TODO')).toEqual([
      'scripts/a.ts:3: TODO: do it, or open an issue',
    ])
  })
})

describe('names', () => {
  test.each([
    'src/core/systemClock.ts',
    'src/core/System-clock.ts',
    'src/core/system_clock.ts',
    'src/someFolder/clock.ts',
    'src/core/clock.spec.ts',
    'src/core/utils.ts',
    'src/core/helpers.test.ts',
    'src/common/clock.ts',
    'src/store/types.ts',
  ])('%s is refused', (file) => {
    expect(findBadName(file)).toHaveLength(1)
    expect(checkFile(file, '')).not.toEqual([])
  })

  test.each([
    'src/core/system-clock.ts',
    'src/core/id.test.ts',
    'vitest.config.ts',
    'src/dashboard/page.tsx',
  ])('%s is fine', (file) => {
    expect(findBadName(file)).toEqual([])
  })
})

describe('the lock file', () => {
  const lock = (entry: object) => JSON.stringify({ packages: { '': {}, 'node_modules/x': entry } })

  test('may not say where a package comes from', () => {
    expect(findForeignPackages(lock({ resolved: 'https://example.com/x-1.0.0.tgz' }))).toHaveLength(1)
    expect(findForeignPackages(lock({ resolved: 'git+ssh://git@example.com/x.git' }))).toHaveLength(1)
  })

  test('may name a checksum, and a folder of this repository', () => {
    expect(findForeignPackages(lock({ integrity: 'sha512-x' }))).toEqual([])
    expect(findForeignPackages(lock({ resolved: 'packages/x', link: true }))).toEqual([])
  })
})

describe('splitting source', () => {
  test.each([
    [`a('b') // c`, `a('b')     `, `a(' ')     `],
    [`a /* b */ c`, `a         c`, `a         c`],
    [`'it\\'s' + "//"`, `'it\\'s' + "//"`, `'     ' + "  "`],
    ['`a${b(`c`)}d`', '`a${b(`c`)}d`', '` ${b(` `)} `'],
    ['`${{ a: {} }}x`', '`${{ a: {} }}x`', '`${{ a: {} }} `'],
    ['x = /["/]/.test(y)', 'x = /["/]/.test(y)', 'x = /    /.test(y)'],
    ['a / b / c // d', 'a / b / c     ', 'a / b / c     '],
    ['return /a/', 'return /a/', 'return / /'],
    [`'unclosed\nb`, `'unclosed\nb`, `'        \nb`],
  ])('%j', (source, code, bare) => {
    expect(splitSource(source)).toMatchObject({ code, bare })
  })
})
