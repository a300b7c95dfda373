import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TemporaryRepository } from './fixtures/temporary-repository.ts'
import { cleanItemFolder, listItemFolders } from './left-folders.ts'

let repository: TemporaryRepository
beforeEach(() => {
  repository = TemporaryRepository.begin()
})
afterEach(() => repository.remove())

const show = (ref: string, file: string) => repository.git('show', `${ref}:${file}`)

test('every item has the files of the commit that was pinned, whatever is committed later', async () => {
  const base = repository.head()
  const folders = await repository.open()
  expect(folders).toMatchObject({ kind: 'worktree', base, note: null })
  repository.write('later.txt', 'later')
  repository.commit('Later')
  const { path: folder, kind } = await folders.create('item-1')
  expect(kind).toBe('worktree')
  expect(folder).toBe(path.join(repository.rootOf('j_1'), 'item-1'))
  expect(readdirSync(folder).sort()).toEqual(['.git', '.gitignore', 'shared.txt'])
  expect(await folders.headOf('item-1')).toBe(base)
  expect(repository.gitIn(folder, 'status', '--porcelain')).toBe('')

  const resumed = await repository.open({ base })
  expect(resumed.base).toBe(base)
  expect(existsSync(path.join((await resumed.create('item-2')).path, 'later.txt'))).toBe(false)
})

test('E2: after an item nothing of it is left, and the main checkout is as it was', async () => {
  repository.write('shared.txt', 'not committed')
  const before = [
    repository.head(),
    repository.git('status', '--porcelain'),
    repository.git('branch', '--all'),
  ]
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  expect(await folders.remove('item-1', { keep: true })).toEqual({ kept: null, failed: null })
  expect(existsSync(folder)).toBe(false)
  expect(repository.worktrees()).toEqual([])
  expect(repository.refs()).toEqual([])
  expect([
    repository.head(),
    repository.git('status', '--porcelain'),
    repository.git('branch', '--all'),
  ]).toEqual(before)
  await folders.close()
  expect(existsSync(repository.rootOf('j_1'))).toBe(false)
  expect(await folders.remove('never-made', { keep: true })).toEqual({ kept: null, failed: null })
})

test('E4: what was committed and changed is kept in one commit, but for files that git ignores', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('done.txt', 'done', folder)
  const committed = repository.commit('Step 1', folder)
  repository.write('shared.txt', 'half', folder)
  repository.write('sub folder/new.txt', 'new', folder)
  repository.write('built.ignored', 'no', folder)
  const { kept, failed } = await folders.remove('item-1', { keep: true })
  expect(failed).toBeNull()
  expect(kept).toMatchObject({
    ...{ ref: 'refs/curfew/j_1/item-1', commits: 1, incomplete: null },
    changedFiles: ['done.txt', 'shared.txt', 'sub folder/new.txt'],
  })
  expect(kept?.diffStat).toContain('3 files changed')
  expect(repository.git('rev-parse', 'refs/curfew/j_1/item-1')).toBe(kept?.commit)
  expect(repository.git('rev-parse', 'refs/curfew/j_1/item-1~1')).toBe(committed)
  expect(show('refs/curfew/j_1/item-1', 'sub folder/new.txt')).toBe('new')
  expect(show('refs/curfew/j_1/item-1', 'shared.txt')).toBe('half')
  expect(repository.git('ls-tree', '-r', '--name-only', kept!.commit)).not.toContain('built.ignored')
  expect(repository.worktrees()).toEqual([])
})

test('E4: in a sparse checkout what lies outside of it is kept too, and nothing counts as deleted', async () => {
  for (const folder of ['inside', 'outside']) repository.write(`${folder}/file.txt`, folder)
  repository.commit('Two folders')
  repository.git('sparse-checkout', 'set', 'inside')
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  expect(existsSync(path.join(folder, 'outside'))).toBe(false)
  repository.write('outside/new.txt', 'new', folder)
  const { kept } = await folders.remove('item-1', { keep: true })
  expect(kept).toMatchObject({ changedFiles: ['outside/new.txt'], incomplete: null })
})

test('a change within the tick in which the index was written, of the same length, is not overlooked', async () => {
  repository.git('config', 'core.trustCtime', 'false')
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  const file = path.join(folder, 'shared.txt')
  const index = path.join(repository.gitIn(folder, 'rev-parse', '--git-dir'), 'index')
  const tick = 1_700_000_000
  utimesSync(file, tick, tick)
  repository.gitIn(folder, 'update-index', '--refresh')
  writeFileSync(file, 'ONE\ntwo\nthree\n')
  for (const written of [file, index]) utimesSync(written, tick, tick)
  const { kept } = await folders.remove('item-1', { keep: true })
  expect(show(kept!.ref, 'shared.txt')).toBe('ONE\ntwo\nthree')
})

test('commits alone are kept as they are, and nothing is kept where that is not wanted', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('a.txt', 'a', folder)
  const commit = repository.commit('Step 1', folder)
  const { kept } = await folders.remove('item-1', { keep: true })
  expect(kept).toMatchObject({ commit, commits: 1, changedFiles: ['a.txt'] })

  repository.write('b.txt', 'b', (await folders.create('item-2')).path)
  expect(await folders.remove('item-2', { keep: false })).toEqual({ kept: null, failed: null })
  expect(repository.refs()).toEqual(['refs/curfew/j_1/item-1'])
})

test('what is merged already is not kept again, what was left uncommitted beside it is', async () => {
  const folders = await repository.open()
  for (const item of ['item-1', 'item-2']) {
    const { path: folder } = await folders.create(item)
    repository.write(`${item}.txt`, 'x', folder)
    repository.commit('Step 1', folder)
    expect((await folders.mergeBack(item)).type).toBe('merged')
  }
  expect((await folders.remove('item-1', { keep: true })).kept).toBeNull()
  repository.write('notes.txt', 'left', path.join(repository.rootOf('j_1'), 'item-2'))
  expect((await folders.remove('item-2', { keep: true })).kept).toMatchObject({
    ...{ commits: 0, changedFiles: ['notes.txt'] },
  })
})

test('a second attempt starts afresh, and what the first one made is kept beside what the second one makes', async () => {
  const folders = await repository.open()
  repository.write('first.txt', '1', (await folders.create('item-1')).path)
  const { path: folder } = await folders.create('item-1')
  expect(existsSync(path.join(folder, 'first.txt'))).toBe(false)
  repository.write('second.txt', '2', folder)
  expect((await folders.remove('item-1', { keep: true })).kept?.ref).toBe('refs/curfew/j_1/item-1.2')
  expect(show('refs/curfew/j_1/item-1', 'first.txt')).toBe('1')
  expect(show('refs/curfew/j_1/item-1.2', 'second.txt')).toBe('2')
})

test('in a folder of the repository, items work in the same folder of their worktree', async () => {
  repository.write('packages/one/a.txt', 'a')
  repository.commit('A package')
  mkdirSync(path.join(repository.top, 'packages/new'))
  const folders = await repository.open({ cwd: path.join(repository.top, 'packages/one') })
  const { path: folder } = await folders.create('item-1')
  expect(folder).toBe(path.join(repository.rootOf('j_1'), 'item-1/packages/one'))
  expect(readdirSync(folder)).toEqual(['a.txt'])
  repository.write('../../top.txt', 'top', folder)
  expect((await folders.remove('item-1', { keep: true })).kept?.changedFiles).toEqual(['top.txt'])

  const untracked = await repository.open({ cwd: path.join(repository.top, 'packages/new') })
  expect(readdirSync((await untracked.create('item-2')).path)).toEqual([])
})

test('without a repository there are plain folders, and it says why', async () => {
  const folders = await repository.open({ cwd: repository.home })
  expect(folders).toMatchObject({ kind: 'plain', base: null })
  expect(folders.note).toContain(`${repository.home} is not in a git repository`)
  const { path: folder, kind } = await folders.create('item-1')
  expect([kind, readdirSync(folder)]).toEqual(['plain', []])
  repository.write('a.txt', 'a', folder)
  expect(readdirSync((await folders.create('item-1')).path)).toEqual([])
  expect(await folders.mergeBack('item-1')).toEqual({ type: 'nothing' })
  expect(await folders.headOf('item-1')).toBeNull()
  expect(await folders.remove('item-1', { keep: true })).toEqual({ kept: null, failed: null })
  expect(existsSync(folder)).toBe(false)
})

test('a repository without a commit, or without a checkout, has no worktrees, and neither has one where git is off', async () => {
  const empty = new TemporaryRepository()
  try {
    expect((await empty.open()).note).toContain('has no commit yet')
    empty.git('init', '--bare', '--quiet', 'bare.git')
    expect((await empty.open({ cwd: path.join(empty.top, 'bare.git') })).note).toContain('without a checkout')
  } finally {
    empty.remove()
  }
  expect(await repository.open({ useGit: false })).toMatchObject({ kind: 'plain', note: null })
  expect((await repository.open({ env: { PATH: repository.home } })).note).toContain(
    'there is no git program',
  )
})

test('a run that began in a repository does not go on without it', async () => {
  const base = repository.head()
  await expect(repository.open({ base, cwd: repository.home })).rejects.toMatchObject({
    code: 'repository_gone',
  })
  const foreign = base.replace(/./g, '1')
  await expect(repository.open({ base: foreign })).rejects.toMatchObject({ code: 'base_gone' })
})

test('a line break in the name of a folder of the repository is a part of it', async () => {
  const folder = 'two\nlines'
  repository.write(`${folder}/a.txt`, 'a')
  repository.commit('A strange name')
  const folders = await repository.open({ cwd: path.join(repository.top, folder) })
  const item = await folders.create('item-1')
  expect(path.basename(item.path)).toBe(folder)
  expect(readdirSync(item.path)).toEqual(['a.txt'])
})

test('hooks do not run, and a repository of the environment is not mistaken for ours', async () => {
  const told = repository.addFailingHooks()
  const folders = await repository.open({
    env: {
      ...repository.env,
      GIT_DIR: '/nowhere',
      GIT_WORK_TREE: '/nowhere',
      GIT_INDEX_FILE: '/nowhere/index',
    },
  })
  repository.write('a.txt', 'a', (await folders.create('item-1')).path)
  expect((await folders.remove('item-1', { keep: true })).kept?.changedFiles).toEqual(['a.txt'])
  expect(existsSync(told)).toBe(false)
})

test('a user without a name can keep changes, under ours', async () => {
  repository.git('config', '--unset', 'user.name')
  repository.git('config', 'user.useConfigOnly', 'true')
  const folders = await repository.open()
  repository.write('a.txt', 'a', (await folders.create('item-1')).path)
  const { kept } = await folders.remove('item-1', { keep: true })
  expect(repository.git('log', '-1', '--format=%an <%ae>', kept!.ref)).toBe('curfew <ada@example.org>')
})

test('a folder that its own command deleted is cleaned up, and its commits are kept', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('a.txt', 'a', folder)
  const commit = repository.commit('Step 1', folder)
  rmSync(folder, { recursive: true })
  expect(await folders.headOf('item-1')).toBe(commit)
  expect(await folders.remove('item-1', { keep: true })).toMatchObject({ kept: { commit }, failed: null })
  expect(repository.worktrees()).toEqual([])
})

test.each([
  ['the .git file is deleted', (folder: string) => rmSync(path.join(folder, '.git'))],
  [
    'the .git file is another text',
    (folder: string) => writeFileSync(path.join(folder, '.git'), 'gitdir: /nowhere'),
  ],
  [
    'a repository of its own stands there',
    (folder: string) => {
      rmSync(path.join(folder, '.git'))
      repository.gitIn(folder, 'init', '--quiet')
    },
  ],
  [
    'the index is broken and locked',
    (folder: string) => {
      const gitDir = repository.gitIn(folder, 'rev-parse', '--git-dir')
      writeFileSync(path.join(gitDir, 'index'), 'broken')
      writeFileSync(path.join(gitDir, 'index.lock'), '')
    },
  ],
  [
    'git has forgotten it',
    (folder: string) => rmSync(repository.gitIn(folder, 'rev-parse', '--git-dir'), { recursive: true }),
  ],
  ['it is locked', (folder: string) => repository.git('worktree', 'lock', folder)],
  [
    'its branch is unborn',
    (folder: string) => repository.gitIn(folder, 'checkout', '--quiet', '--orphan', 'fresh'),
  ],
  [
    'there is a repository without a commit in it',
    (folder: string) => repository.gitIn(folder, 'init', '--quiet', 'inner'),
  ],
  [
    'there is a worktree of its own in it',
    (folder: string) => repository.gitIn(folder, 'worktree', 'add', '--quiet', '--detach', 'inner'),
  ],
])('a change is kept and the worktree removed where %s', async (_what, destroy) => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('shared.txt', 'changed', folder)
  destroy(folder)
  const { kept, failed } = await folders.remove('item-1', { keep: true })
  expect(failed).toBeNull()
  expect(show(kept!.ref, 'shared.txt')).toBe('changed')
  expect(existsSync(folder)).toBe(false)
  expect(repository.worktrees()).toEqual([])
  expect(readdirSync(repository.rootOf('j_1'))).toEqual([])
})

test('files that git cannot take along are named, and the others are kept', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.gitIn(folder, 'init', '--quiet', 'inner')
  repository.write('inner/a.txt', 'a', folder)
  repository.write('b.txt', 'b', folder)
  const { kept } = await folders.remove('item-1', { keep: true })
  expect(kept?.changedFiles).toEqual(['b.txt'])
  expect(kept?.incomplete).toContain('inner')
})

test('a folder that was replaced by a link is unlinked, and what it points to is left alone', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  rmSync(folder, { recursive: true })
  symlinkSync(repository.top, folder)
  expect(await folders.remove('item-1', { keep: true })).toEqual({ kept: null, failed: null })
  expect(existsSync(folder)).toBe(false)
  expect(repository.read('shared.txt')).toContain('one')
  expect(repository.worktrees()).toEqual([])
})

test('read-only folders in it are removed', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('cache/deep/a.ignored', 'a', folder)
  for (const sub of ['cache/deep', 'cache']) chmodSync(path.join(folder, sub), 0o555)
  expect(await folders.remove('item-1', { keep: true })).toEqual({ kept: null, failed: null })
  expect(existsSync(folder)).toBe(false)
})

test('E3: a folder that cannot be removed is told and listed, and can be cleaned later', async () => {
  const { env, runs, top: cwd } = repository
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('a.txt', 'a', folder)
  repository.write('stuck/b.ignored', 'b', folder)
  const isRoot = process.getuid?.() === 0 // whom modes do not stop
  const stuck = isRoot ? `${folder}.left-1/stuck/b.ignored` : path.dirname(folder)
  if (isRoot) execFileSync('chattr', ['+i', path.join(folder, 'stuck/b.ignored')])
  else chmodSync(stuck, 0o555)
  try {
    const { kept, failed } = await folders.remove('item-1', { keep: true })
    expect(kept?.changedFiles).toEqual(['a.txt'])
    expect(failed).toMatch(/EPERM|EACCES/)
    const listed = await listItemFolders(runs, { env, cwd })
    expect(listed).toMatchObject([{ jobId: 'j_1', itemId: 'item-1' }])
    if (isRoot) {
      expect(listed).toMatchObject([{ path: `${folder}.left-1`, hasChanges: false, commits: 0 }])
      expect(repository.worktrees()).toEqual([])
      expect(existsSync(`${folder}.left-1/shared.txt`)).toBe(false)
      expect((await folders.create('item-1')).path).toBe(folder) // nothing is in its way
      expect(await folders.remove('item-1', { keep: true })).toEqual({ kept: null, failed: null })
      expect((await cleanItemFolder(listed[0]!, { env })).failed).toMatch(/EPERM/)
    }
  } finally {
    if (isRoot) execFileSync('chattr', ['-i', stuck])
    else chmodSync(stuck, 0o755)
  }
  for (const entry of await listItemFolders(runs, { env, cwd })) {
    expect((await cleanItemFolder(entry, { env })).failed).toBeNull()
  }
  expect(await listItemFolders(runs, { env, cwd })).toEqual([])
  expect(repository.worktrees()).toEqual([])
})

test('what cannot be kept stays in its folder', async () => {
  const folders = await repository.open()
  const { path: folder } = await folders.create('item-1')
  repository.write('a.txt', 'a', folder)
  repository.git('update-ref', 'refs/curfew/j_1', 'HEAD') // no ref can be made below it
  const { kept, failed } = await folders.remove('item-1', { keep: true })
  expect(kept).toBeNull()
  expect(failed).toContain(`${folder} stays`)
  expect(readFileSync(path.join(folder, 'a.txt'), 'utf8')).toBe('a')
})

test('a worktree that cannot be made is told, and leaves nothing', async () => {
  const folders = await repository.open()
  rmSync(path.join(repository.top, '.git/objects'), { recursive: true })
  await expect(folders.create('item-1')).rejects.toMatchObject({ code: 'folder_failed' })
  expect(readdirSync(repository.rootOf('j_1'))).toEqual([])
})

test('the worktrees of others are left alone, also those that git would prune', async () => {
  const own = path.join(repository.home, 'own')
  const gone = path.join(repository.home, 'gone')
  for (const folder of [own, gone]) repository.git('worktree', 'add', '--quiet', '--detach', folder)
  rmSync(gone, { recursive: true })
  const folders = await repository.open()
  await folders.create('item-1')
  await folders.remove('item-1', { keep: true })
  expect(repository.worktrees().sort()).toEqual([gone, own])
})

test('two runs at once in one repository, with ten items each, do not disturb each other', async () => {
  const runs = await Promise.all(['j_1', 'j_2'].map((jobId) => repository.open({ jobId })))
  const items = Array.from({ length: 10 }, (_, index) => `item-${index}`)
  await Promise.all(
    runs.flatMap((folders, run) =>
      items.map(async (item) => {
        const { path: folder } = await folders.create(item)
        repository.write(`${run}-${item}.txt`, item, folder)
        repository.commit(item, folder)
        expect((await folders.mergeBack(item)).type).toBe('merged')
        expect(await folders.remove(item, { keep: true })).toEqual({ kept: null, failed: null })
      }),
    ),
  )
  expect(repository.worktrees()).toEqual([])
  expect(repository.refs()).toEqual([])
  expect(repository.git('status', '--porcelain')).toBe('')
  expect(repository.git('ls-files').split('\n')).toHaveLength(22)
}, 60_000)

test('an id that could be a path or an option is a bug of the caller', async () => {
  await expect(repository.open({ jobId: '../j_1' })).rejects.toThrow('is no id of a job')
  const folders = await repository.open()
  for (const id of ['', '..', '-f', 'a/b', 'a.lock', 'a b']) {
    await expect(folders.create(id)).rejects.toThrow('is no id of an item')
  }
})
