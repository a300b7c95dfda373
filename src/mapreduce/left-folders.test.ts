import { existsSync, mkdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TemporaryRepository } from './fixtures/temporary-repository.ts'
import { cleanItemFolder, listItemFolders } from './left-folders.ts'

let repository: TemporaryRepository
beforeEach(() => {
  repository = TemporaryRepository.begin()
})
afterEach(() => repository.remove())

const list = (cwd?: string) => listItemFolders(repository.runs, { env: repository.env, ...(cwd && { cwd }) })

test('worktrees and plain folders of all runs are listed with what is in them', async () => {
  expect(await list()).toEqual([])
  const one = await repository.open({ jobId: 'j_1' })
  const two = await repository.open({ jobId: 'j_2' })
  const plain = await repository.open({ jobId: 'j_3', useGit: false })
  const { path: first } = await one.create('item-1')
  repository.write('a.txt', 'a', first)
  repository.commit('A', first)
  repository.write('b.txt', 'b', first)
  await two.create('item-1')
  repository.write('c.txt', 'c', (await plain.create('item-1')).path)
  await plain.create('item-2')
  mkdirSync(path.join(repository.runs, 'j_4'))

  const common = path.join(repository.top, '.git')
  const pathOf = (job: string, item: string) => path.join(repository.rootOf(job), item)
  const expected = [
    ['j_1', 'item-1', common, true, 1],
    ['j_2', 'item-1', common, false, 0],
    ['j_3', 'item-1', null, true, 0],
    ['j_3', 'item-2', null, false, 0],
  ].map(([jobId, itemId, from, hasChanges, commits]) => ({
    ...{
      jobId,
      itemId,
      path: pathOf(jobId as string, itemId as string),
      repository: from,
      hasChanges,
      commits,
    },
  }))
  expect(await list()).toEqual(expected)
  expect(await list(repository.top)).toEqual(expected)
  expect(await list(repository.home)).toEqual(expected)
})

test('cleaning keeps what is in a folder, then removes it', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('a.txt', 'a', folder)
  const commit = repository.commit('A', folder)
  repository.write('b.txt', 'b', folder)
  repository.write('later.txt', 'later')
  repository.commit('Later')
  const [entry] = await list()
  expect(await cleanItemFolder(entry!, { env: repository.env })).toMatchObject({
    kept: { ref: 'refs/curfew/j_1/item-1', commits: 1, changedFiles: ['a.txt', 'b.txt'] },
    failed: null,
  })
  expect(repository.git('rev-parse', 'refs/curfew/j_1/item-1^')).toBe(commit)
  expect(existsSync(folder)).toBe(false)
  expect(repository.worktrees()).toEqual([])
  expect(await list(repository.top)).toEqual([])
})

test('a worktree whose folder, or .git file, is gone is found through the repository', async () => {
  const folders = await repository.open()
  const { path: gone } = await folders.create('item-1')
  rmSync(gone, { recursive: true })
  const { path: damaged } = await folders.create('item-2')
  rmSync(path.join(damaged, '.git'))
  repository.write('a.txt', 'a', damaged)
  repository.git('worktree', 'add', '--quiet', '--detach', path.join(repository.home, 'own'))

  const entries = await list(repository.top)
  expect(entries).toMatchObject([
    { itemId: 'item-1', hasChanges: false, commits: 0 },
    { itemId: 'item-2', hasChanges: true, commits: 0 },
  ])
  for (const entry of entries) {
    expect((await cleanItemFolder(entry, { env: repository.env })).failed).toBeNull()
  }
  expect(repository.git('show', 'refs/curfew/j_1/item-2:a.txt')).toBe('a')
  expect(repository.worktrees()).toEqual([path.join(repository.home, 'own')])
})

test('a plain folder, and a worktree whose repository was deleted, are cleaned', async () => {
  const plain = await repository.open({ jobId: 'j_1', useGit: false })
  await plain.create('item-1')
  await (await repository.open({ jobId: 'j_2' })).create('item-1')
  rmSync(repository.top, { recursive: true })
  const entries = await list()
  expect(entries).toMatchObject([{ repository: null }, { repository: null, hasChanges: true }])
  for (const entry of entries) {
    expect(await cleanItemFolder(entry, { env: repository.env })).toEqual({ kept: null, failed: null })
  }
  expect(await list()).toEqual([])
})
