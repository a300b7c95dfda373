import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TemporaryRepository } from './fixtures/temporary-repository.ts'
import type { ItemFolders } from './worktrees.ts'

let repository: TemporaryRepository
let folders: ItemFolders
beforeEach(async () => {
  repository = TemporaryRepository.begin()
  folders = await repository.open()
})
afterEach(() => repository.remove())

/** An item that commits these files. Answers with its commit. */
async function commitIn(item: string, files: Record<string, string>): Promise<string> {
  const { path: folder } = await folders.create(item)
  for (const [file, text] of Object.entries(files)) repository.write(file, text, folder)
  return repository.commit(`Work of ${item}`, folder)
}

const folderOf = (item: string) => path.join(repository.rootOf('j_1'), item)

test('the first item is fast-forwarded, the next ones are merged, and the files follow', async () => {
  const first = await commitIn('item-1', { 'a.txt': 'a' })
  const second = await commitIn('item-2', { 'b.txt': 'b', 'shared.txt': 'ONE\ntwo\nthree\n' })
  const third = await commitIn('item-3', { 'shared.txt': 'one\ntwo\nTHREE\n' })
  expect(await folders.mergeBack('item-1')).toEqual({ type: 'merged', commit: first })
  expect(await folders.mergeBack('item-2')).toEqual({ type: 'merged', commit: repository.head() })
  expect(repository.git('log', '-1', '--format=%s %an %P')).toBe(
    `Merge item item-2 of j_1 Ada ${first} ${second}`,
  )
  const clean = await folders.mergeBack('item-3')
  expect(clean.type).toBe('merged')
  expect(repository.read('shared.txt')).toBe('ONE\ntwo\nTHREE\n')
  expect([repository.read('a.txt'), repository.read('b.txt')]).toEqual(['a', 'b'])
  expect(repository.git('merge-base', 'HEAD', third)).toBe(third)
  expect(repository.git('symbolic-ref', 'HEAD')).toBe('refs/heads/main')
  expect(repository.git('status', '--porcelain')).toBe('')
})

test('a conflict touches nothing, names the files, and keeps the branch', async () => {
  await commitIn('item-1', { 'shared.txt': 'mine\ntwo\nthree\n' })
  const head = await commitIn('item-2', { 'shared.txt': 'yours\ntwo\nthree\n', 'b.txt': 'b' })
  await folders.mergeBack('item-1')
  const before = repository.head()
  expect(await folders.mergeBack('item-2')).toEqual({
    ...{ type: 'conflict', branch: 'curfew/j_1/item-2', files: ['shared.txt'] },
  })
  expect(repository.git('rev-parse', 'curfew/j_1/item-2')).toBe(head)
  expect(repository.head()).toBe(before)
  expect(repository.git('status', '--porcelain')).toBe('')
  expect(existsSync(path.join(repository.top, 'b.txt'))).toBe(false)
  await folders.remove('item-2', { keep: true })
  expect(repository.git('branch', '--list', 'curfew/*')).toContain('curfew/j_1/item-2')
})

test('E5: nothing is merged of an item that is not merged back, nor what it did not commit', async () => {
  await commitIn('item-1', { 'a.txt': 'a' })
  repository.write('half.txt', 'half', folderOf('item-1'))
  const base = repository.head()
  await folders.remove('item-1', { keep: true })
  expect(repository.head()).toBe(base)
  expect(repository.git('branch', '--contains', 'refs/curfew/j_1/item-1')).toBe('')

  await commitIn('item-2', { 'b.txt': 'b' })
  repository.write('half.txt', 'half', folderOf('item-2'))
  await folders.mergeBack('item-2')
  expect([repository.read('b.txt'), repository.read('half.txt')]).toEqual(['b', null])
})

test('an item without a commit of its own has nothing to merge', async () => {
  const { path: folder } = await folders.create('item-1')
  repository.write('a.txt', 'a', folder)
  expect(await folders.mergeBack('item-1')).toEqual({ type: 'nothing' })
})

test('merging twice, as after a crash in between, is merging once', async () => {
  const commit = await commitIn('item-1', { 'a.txt': 'a' })
  await folders.mergeBack('item-1')
  repository.write('mine.txt', 'mine')
  const mine = repository.commit('Mine')
  const resumed = await repository.open({ base: folders.base })
  expect(await resumed.mergeBack('item-1')).toEqual({ type: 'merged', commit })
  expect(repository.head()).toBe(mine)
})

/** A git that, so many times, finds a commit made in the main checkout right before it moves it. */
function overtakenGit(times: number): NodeJS.ProcessEnv {
  const git = execFileSync('sh', ['-c', 'command -v git'], { encoding: 'utf8' }).trim()
  const file = path.join(repository.home, 'bin/git')
  repository.write(
    'bin/git',
    `#!/bin/sh
case "$*" in *--ff-only*)
  echo x >> "$HOME/merges"
  if [ $(wc -l < "$HOME/merges") -le ${times} ]; then ${git} commit --quiet --allow-empty --message Mine; fi;;
esac
exec ${git} "$@"
`,
    repository.home,
  )
  chmodSync(file, 0o755)
  return { ...repository.env, PATH: `${path.dirname(file)}:${repository.env.PATH}` }
}

test('a main checkout that moves during the merge is merged into again', async () => {
  await commitIn('item-1', { 'a.txt': 'a' })
  const resumed = await repository.open({ env: overtakenGit(2), base: folders.base })
  expect((await resumed.mergeBack('item-1')).type).toBe('merged')
  expect(repository.git('log', '--first-parent', '--format=%s')).toBe(
    'Merge item item-1 of j_1\nMine\nMine\nFirst',
  )
  expect(repository.git('status', '--porcelain')).toBe('')
})

test('a main checkout that never rests refuses the merge in the end', async () => {
  await commitIn('item-1', { 'a.txt': 'a' })
  const resumed = await repository.open({ env: overtakenGit(1_000), base: folders.base })
  expect(await resumed.mergeBack('item-1')).toMatchObject({ type: 'refused', branch: 'curfew/j_1/item-1' })
  expect(repository.git('rev-list', '--count', 'HEAD')).toBe('6')
})

test('local changes elsewhere stay, and those that would be overwritten refuse the merge', async () => {
  repository.git('config', 'merge.autoStash', 'true')
  repository.write('other.txt', 'other')
  repository.commit('Other')
  folders = await repository.open()
  repository.write('other.txt', 'not committed')
  repository.write('a.txt', 'not tracked')
  await commitIn('item-1', { 'shared.txt': 'ONE\ntwo\nthree\n' })
  expect((await folders.mergeBack('item-1')).type).toBe('merged')
  expect(repository.read('other.txt')).toBe('not committed')

  const before = repository.head()
  const second = await commitIn('item-2', { 'other.txt': 'of the item' })
  const refused = await folders.mergeBack('item-2')
  expect(refused).toMatchObject({ type: 'refused', branch: 'curfew/j_1/item-2' })
  expect(refused).toHaveProperty('message', expect.stringContaining('other.txt'))
  expect(repository.git('rev-parse', 'curfew/j_1/item-2')).toBe(second)
  await commitIn('item-3', { 'a.txt': 'of the item' })
  expect(await folders.mergeBack('item-3')).toMatchObject({ type: 'refused', branch: 'curfew/j_1/item-3' })
  expect(repository.head()).toBe(before)
  expect([repository.read('other.txt'), repository.read('a.txt')]).toEqual(['not committed', 'not tracked'])
})

test('files that git ignores in the checkout are not overwritten either', async () => {
  repository.write('.gitignore', '.env\nbuild\n')
  repository.commit('Ignored')
  folders = await repository.open()
  repository.write('.env', 'of the user')
  repository.write('build/out', 'of the user')
  for (const [item, file] of [
    ['item-1', '.env'],
    ['item-2', 'build/out'],
  ] as const) {
    const { path: folder } = await folders.create(item)
    repository.write(file, 'of the item', folder)
    repository.gitIn(folder, 'add', '--force', file)
    repository.gitIn(folder, 'commit', '--quiet', '--message', item)
    const refused = await folders.mergeBack(item)
    expect(refused).toMatchObject({ type: 'refused', branch: `curfew/j_1/${item}` })
    expect(refused).toHaveProperty('message', expect.stringContaining(file))
    expect(repository.read(file)).toBe('of the user')
  }
  expect(repository.git('status', '--porcelain')).toBe('')
})

test('a main checkout without a branch is moved as well', async () => {
  repository.git('checkout', '--quiet', '--detach')
  const main = repository.git('rev-parse', 'main')
  const commit = await commitIn('item-1', { 'a.txt': 'a' })
  expect(await folders.mergeBack('item-1')).toEqual({ type: 'merged', commit })
  expect([repository.head(), repository.git('rev-parse', 'main')]).toEqual([commit, main])
  expect(repository.read('a.txt')).toBe('a')
})

test('started in a worktree of the user, items are merged there', async () => {
  const cwd = path.join(repository.home, 'other checkout')
  repository.git('worktree', 'add', '--quiet', '-b', 'other', cwd)
  const main = repository.head()
  folders = await repository.open({ cwd })
  const commit = await commitIn('item-1', { 'a.txt': 'a' })
  expect(await folders.mergeBack('item-1')).toEqual({ type: 'merged', commit })
  expect(readFileSync(path.join(cwd, 'a.txt'), 'utf8')).toBe('a')
  expect([repository.git('rev-parse', 'other'), repository.head()]).toEqual([commit, main])
})

test('it is merged into what the main checkout has come to meanwhile', async () => {
  await commitIn('item-1', { 'a.txt': 'a' })
  repository.git('checkout', '--quiet', '-b', 'elsewhere')
  repository.write('mine.txt', 'mine')
  const mine = repository.commit('Mine')
  expect((await folders.mergeBack('item-1')).type).toBe('merged')
  expect(repository.git('rev-parse', 'elsewhere^1')).toBe(mine)
})

test('options that a user has set for merging into the branch have no say', async () => {
  repository.git('config', 'branch.main.mergeOptions', '--squash')
  repository.git('config', 'merge.ff', 'false')
  const commit = await commitIn('item-1', { 'a.txt': 'a' })
  expect(await folders.mergeBack('item-1')).toEqual({ type: 'merged', commit })
  expect([repository.head(), repository.git('status', '--porcelain')]).toEqual([commit, ''])
})

test('hooks have no say', async () => {
  await commitIn('item-1', { 'a.txt': 'a' })
  await commitIn('item-2', { 'b.txt': 'b' })
  const told = repository.addFailingHooks()
  expect((await folders.mergeBack('item-1')).type).toBe('merged')
  expect((await folders.mergeBack('item-2')).type).toBe('merged')
  expect(existsSync(told)).toBe(false)
})

test('where a branch is named curfew, what conflicts is kept under another ref', async () => {
  repository.git('branch', 'curfew')
  await commitIn('item-1', { 'shared.txt': 'mine' })
  const head = await commitIn('item-2', { 'shared.txt': 'yours' })
  await folders.mergeBack('item-1')
  expect(await folders.mergeBack('item-2')).toMatchObject({
    type: 'conflict',
    branch: 'refs/curfew/j_1/item-2',
  })
  expect(repository.git('rev-parse', 'refs/curfew/j_1/item-2')).toBe(head)
})

test('the branch of an earlier attempt is not overwritten', async () => {
  repository.write('shared.txt', 'main')
  const first = await commitIn('item-1', { 'shared.txt': 'first' })
  repository.commit('Main')
  expect(await folders.mergeBack('item-1')).toMatchObject({ type: 'conflict', branch: 'curfew/j_1/item-1' })
  expect(await folders.mergeBack('item-1')).toMatchObject({ type: 'conflict', branch: 'curfew/j_1/item-1' })
  await commitIn('item-1', { 'shared.txt': 'second' })
  // The second name was free, but a ref of the worktree that was made anew has it.
  expect(repository.refs()).toEqual(['refs/curfew/j_1/item-1.2'])
  expect(await folders.mergeBack('item-1')).toMatchObject({ type: 'conflict', branch: 'curfew/j_1/item-1.3' })
  expect(repository.git('rev-parse', 'curfew/j_1/item-1')).toBe(first)
})

test('an item whose worktree is gone without a trace cannot be merged, and nothing is thrown', async () => {
  expect(await folders.mergeBack('never-made')).toMatchObject({ type: 'refused', branch: null })
})
