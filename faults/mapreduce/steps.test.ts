import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, vi } from 'vitest'
import { summaryOf, worldTest as test } from './world.ts'

// Each test starts processes, and the machine may be busy.
vi.setConfig({ testTimeout: 90_000, maxConcurrency: 4 })

const ONE = { items: [{ name: 'one' }] }

describe('steps', () => {
  test.concurrent('what one captures the next ones find, in its phase and those after it', async ({
    world,
  }) => {
    const ran = await world.run({
      setup: [{ shell: 'printf "from setup\\n\\n"', capture: 'before' }],
      map: {
        input: { items: ['a', 'b'] },
        agent_template: [
          { shell: 'echo "it is ${item}"', capture: 'said' },
          { shell: 'echo "${before}: ${said}" >> "$MARKS/said-${item}"' },
        ],
      },
      reduce: [
        {
          shell: 'cp "${map.results}" "$MARKS/results"; echo "${map.successful} of ${map.total}"',
          capture: 'sum',
        },
      ],
      merge: [{ shell: 'echo "${before}, ${sum}" > "$MARKS/merged"' }],
    })
    expect(ran.code, ran.stderr).toBe(0)
    expect(world.lines('said-a')).toEqual(['from setup: it is a'])
    expect(world.lines('said-b')).toEqual(['from setup: it is b'])
    expect(world.lines('merged')).toEqual(['from setup, 2 of 2'])
    expect(JSON.parse(world.mark('results') ?? '')).toMatchObject([
      { item_id: 'item-0', item: 'a', status: 'successful', captures: { said: 'it is a' } },
      { item_id: 'item-1', item: 'b', status: 'successful', captures: { said: 'it is b' } },
    ])
  })

  test.concurrent('one whose when is false is passed over; a when that cannot be told fails', async ({
    world,
  }) => {
    const ran = await world.run({
      map: {
        input: { items: [{ name: 'small', n: 1 }, { name: 'big', n: 10 }, { name: 'none' }] },
        agent_template: [
          { shell: 'echo "${item.name}" >> "$MARKS/big"', when: 'item.n > 5' },
          { shell: 'echo "${item.name}" >> "$MARKS/all"' },
        ],
      },
    })
    expect(summaryOf(ran).counts).toMatchObject({ successful: 2, failed: 1 })
    expect(world.lines('big')).toEqual(['big'])
    expect(world.lines('all').toSorted()).toEqual(['big', 'small'])
    expect(ran.stderr).toContain('none failed')
  })

  test.concurrent('env and working_dir hold for their step', async ({ world }) => {
    world.write('sub/folder/file.txt', 'here\n')
    world.commit('A folder')
    const tell = 'echo "$OUTER $INNER $(basename "$PWD")" >> "$MARKS/told"'
    const ran = await world.run(
      {
        env: { OUTER: 'outer-${params.who}', COUNT: 3 },
        map: {
          input: { items: [{ dir: 'sub/folder' }] },
          agent_template: [
            {
              shell: `${tell}; cat file.txt >> "$MARKS/told"`,
              env: { INNER: 'inner-$${x}' },
              working_dir: '${item.dir}',
            },
            { shell: 'echo "[$INNER] $COUNT" >> "$MARKS/told"; pwd > "$MARKS/cwd"' },
            { shell: 'true', working_dir: 'nowhere' },
          ],
        },
      },
      ['--param', 'who=you'],
    )
    expect(world.lines('told')).toEqual(['outer-you inner-${x} folder', 'here', '[] 3'])
    expect(world.lines('cwd')[0]).not.toBe(world.top)
    expect(summaryOf(ran).counts.failed).toBe(1)
    expect(ran.stderr).toMatch(/Command 2.*nowhere/)
  })

  test.concurrent('retry runs it again until it gets through, or no tries are left', async ({ world }) => {
    const retry = { retries: 2, backoff: { initial_ms: 10, max_ms: 10 } }
    const count = 'echo x >> "$MARKS/${item.name}"; test "$(wc -l < "$MARKS/${item.name}")" -ge "${item.at}"'
    const ran = await world.run({
      map: {
        input: {
          items: [
            { name: 'third', at: 3 },
            { name: 'never', at: 9 },
          ],
        },
        agent_template: [{ shell: count, retry }],
      },
    })
    expect(summaryOf(ran).counts).toMatchObject({ successful: 1, failed: 1 })
    expect(world.lines('third')).toHaveLength(3)
    expect(world.lines('never')).toHaveLength(3)
  })

  test.concurrent('the limit of a command is over with it: the wait for the next try may be longer', async ({
    world,
  }) => {
    const retry = { retries: 1, backoff: { initial: '3.5s', jitter: 0 } }
    const ran = await world.run({
      map: {
        ...{ input: { items: ['a'] }, timeout_config: { timeout_policy: 'per_command' } },
        agent_template: [
          { shell: 'echo x >> "$MARKS/tries"; test "$(wc -l < "$MARKS/tries")" -ge 2', timeout: 1, retry },
        ],
      },
    })
    expect(summaryOf(ran)).toMatchObject({ counts: { successful: 1 }, timeouts: [] })
    const { 'item-0': item } = await world.items(summaryOf(ran).jobId)
    expect([item!.attempts, world.lines('tries')]).toEqual([1, ['x', 'x']])
  })

  test.concurrent('the limit of a command that could not be started is over as well', async ({ world }) => {
    const retry = { retries: 1, backoff: { initial: '3.5s', jitter: 0 } }
    const ran = await world.run({
      map: {
        ...{ input: { items: ['a'] }, timeout_config: { timeout_policy: 'per_command' } },
        agent_template: [{ shell: 'true', working_dir: 'nowhere', timeout: 1, retry }],
      },
    })
    expect(summaryOf(ran)).toMatchObject({ counts: { failed: 1 }, timeouts: [] })
    expect(ran.stderr).toMatch(/Command 0.*nowhere/)
  })

  test.concurrent('a handler that gets through makes good a failure; on_success follows success', async ({
    world,
  }) => {
    const on_failure = [
      {
        shell:
          'echo "${item.name} ${failure.kind} ${failure.exit_code} ${failure.output}" >> "$MARKS/handled"',
      },
      { shell: 'test "${item.name}" != bad' },
    ]
    const on_success = { shell: 'echo "${item.name}" >> "$MARKS/success"' }
    const ran = await world.run({
      map: {
        input: { items: ['good', 'mended', 'bad'].map((name) => ({ name })) },
        agent_template: [
          { shell: 'test "${item.name}" = good || { printf why >&2; exit 7; }', on_failure, on_success },
          { shell: 'echo "${item.name}" >> "$MARKS/after"' },
        ],
      },
    })
    expect(summaryOf(ran).counts).toMatchObject({ successful: 2, failed: 1 })
    expect(world.lines('handled').toSorted()).toEqual(['bad failed 7 why', 'mended failed 7 why'])
    expect(world.lines('success')).toEqual(['good'])
    expect(world.lines('after').toSorted()).toEqual(['good', 'mended'])
    const [letter] = await world.letters(summaryOf(ran).jobId)
    expect(letter).toMatchObject({
      name: 'bad',
      errorType: 'failure',
      message: expect.stringContaining('exit code 7'),
    })
  })

  test.concurrent('what a handler made good is told apart from its own tries', async ({ world }) => {
    const retry = { retries: 1, backoff: { initial: 0 } }
    const mend = { shell: 'test -e mended || { touch mended; exit 4; }', retry }
    const ran = await world.run({
      map: {
        input: ONE,
        agent_template: [{ shell: 'exit 3', retry, on_failure: mend }, { shell: 'exit 5' }],
      },
    })
    const [letter] = await world.letters(summaryOf(ran).jobId)
    const { steps } = letter!.body.partial as { steps: { status: string; exitCode: number }[] }
    expect(steps.map(({ status, exitCode }) => `${status} ${exitCode}`)).toEqual([
      ...['failed 3', 'handled 3', 'failed 4', 'completed 0', 'failed 5'],
    ])
  })

  test.concurrent('an item whose limit is over while a handler runs has timed out', async ({ world }) => {
    const ran = await world.run({
      map: {
        ...{ input: { items: ['agent', 'command'] }, agent_timeout_secs: 4 },
        timeout_config: { cleanup_grace_period_secs: 1, timeout_action: 'retry' },
        agent_template: [
          { shell: 'test ${attempt} = 2', on_failure: { shell: 'sleep 600', when: 'item == "agent"' } },
          { shell: 'exit 3', when: 'item == "command"', on_failure: { shell: 'sleep 600', timeout: 1 } },
        ],
      },
    })
    const { jobId, counts, timeouts } = summaryOf(ran)
    expect(counts).toMatchObject({ successful: 1, failed: 1 })
    expect(timeouts).toMatchObject([{ name: 'agent', kind: 'agent', limitMs: 4_000 }])
    const { 'item-0': agent, 'item-1': command } = await world.items(jobId)
    expect(agent).toMatchObject({ status: 'successful', attempts: 2, timeouts: [{ type: 'agent' }] })
    expect(command).toMatchObject({ status: 'failed', attempts: 1 })
  })

  test.concurrent('commit_required fails what made no commit; commits are merged', async ({ world }) => {
    const commit =
      'echo "${item.name}" > "${item.name}.txt"; git add --all; git commit --quiet -m "Add ${item.name}"'
    const ran = await world.run({
      map: {
        input: { items: ['x', 'y', 'idle'].map((name) => ({ name })) },
        agent_template: [{ shell: `test "\${item.name}" = idle || { ${commit}; }`, commit_required: true }],
      },
    })
    const summary = summaryOf(ran)
    expect(summary.counts).toMatchObject({ successful: 2, failed: 1 })
    const [letter] = await world.letters(summary.jobId)
    expect(letter).toMatchObject({ name: 'idle', body: { failure: { code: 'no_commit' } } })
    expect(world.git('show', 'HEAD:x.txt')).toBe('x')
    expect(world.git('show', 'HEAD:y.txt')).toBe('y')
    expect(readFileSync(path.join(world.top, 'x.txt'), 'utf8')).toBe('x\n')
    expect(world.git('status', '--porcelain')).toBe('')
    expect(world.worktrees()).toEqual([])
  })

  test.concurrent('the time that git takes to look for a commit is charged to nobody', async ({ world }) => {
    const git = execFileSync('sh', ['-c', 'command -v git'], { encoding: 'utf8' }).trim()
    const isSlow = '*rev-parse*HEAD*) test ! -e "$MARKS/slow" || sleep 2.5;;'
    world.program('git', `#!/bin/sh\ncase "$*" in ${isSlow} esac\nexec ${git} "$@"\n`)
    const ran = await world.run({
      map: {
        input: { items: ['quick', 'hangs'].map((name) => ({ name })) },
        ...{ agent_timeout_secs: 2, timeout_config: { cleanup_grace_period_secs: 1 } },
        agent_template: [
          { shell: 'touch "$MARKS/slow"' },
          { shell: `git commit --quiet --allow-empty -m Empty`, commit_required: true },
          { shell: 'rm -f "$MARKS/slow"; test "${item.name}" = quick || sleep 600' },
        ],
      },
    })
    const { counts, timeouts } = summaryOf(ran)
    expect(counts).toMatchObject({ successful: 1, timedOut: 1 })
    expect(timeouts).toMatchObject([{ name: 'hangs', limitMs: 2_000, resolution: 'GracefulTermination' }])
    expect(timeouts[0]!.elapsedMs).toBeGreaterThanOrEqual(2_000)
    expect(timeouts[0]!.elapsedMs).toBeLessThanOrEqual(4_000)
  })

  test.concurrent('a runner is any program; what it is given stays one argument', async ({ world }) => {
    world.program('ask', '#!/bin/sh\nprintf "%s|" "$#" "$@" > "$MARKS/asked"\n')
    const ran = await world.run(
      {
        runners: { ask: ['ask', '--model', '${params.model}'] },
        map: { input: ONE, agent_template: [{ ask: 'what is "${item.name}"; $(touch x) $HOME' }] },
      },
      ['--param', 'model=a b'],
    )
    expect(ran.code, ran.stderr).toBe(0)
    expect(world.mark('asked')).toBe('3|--model|a b|what is "one"; $(touch x) $HOME|')
  })

  test.concurrent('claude is asked in print mode, in the folder of the item', async ({ world }) => {
    world.program(
      'claude',
      '#!/bin/sh\npwd >> "$MARKS/cwd"\nprintf "%s|" "$@" > "$MARKS/asked"\necho answered\n',
    )
    const ran = await world.run({
      map: {
        input: ONE,
        agent_template: [
          { claude: '/fix ${item.name}\nplease', capture: 'answer' },
          { shell: 'echo "${answer}" > "$MARKS/answer"; pwd >> "$MARKS/cwd"' },
        ],
      },
    })
    expect(ran.code, ran.stderr).toBe(0)
    expect(world.mark('asked')).toBe('--print|/fix one\nplease|')
    expect(world.lines('answer')).toEqual(['answered'])
    const [asked, after] = world.lines('cwd')
    expect(asked).toBe(after)
    expect(asked).not.toBe(world.top)
  })

  test.concurrent('what cannot be run as it stands fails its item and no other', async ({ world }) => {
    world.program('ask', '#!/bin/sh\nprintf "%s|" "$@" >> "$MARKS/asked"\n')
    // Files cannot be written in the folder of this one.
    world.write('.gitattributes', '*.txt filter=picky\n')
    world.commit('A filter')
    world.git('config', 'filter.picky.required', 'true')
    world.git('config', 'filter.picky.clean', 'cat')
    world.git('config', 'filter.picky.smudge', 'case "$PWD" in */item-0) exit 1 ;; *) cat ;; esac')
    const steps = {
      fine: [{ safe: '${item.text}' }, { ask: '-x${item.text}' }],
      option: [{ ask: '${item.text}' }],
      captures: [
        { shell: 'echo here', capture: 'HOME' },
        { shell: 'echo "${MARKS} ${HOME} $(basename "$MARKS")" >> "$MARKS/captured"; test -d "$HOME"' },
      ],
      big: [
        ...['one', 'two', 'three'].map((capture) => ({ shell: 'yes | head -c 100000', capture })),
        { shell: 'exit 5' },
      ],
    }
    const ran = await world.run({
      runners: { ask: ['ask'], safe: ['ask', '--'] },
      // To be named like a variable of the environment changes nothing for the shell.
      setup: [{ shell: 'echo before', capture: 'MARKS' }],
      map: {
        input: { items: ['folder', ...Object.keys(steps)].map((name) => ({ name, text: '--help' })) },
        agent_template: Object.entries(steps).flatMap(([name, own]) =>
          own.map((step) => ({ ...step, when: `item.name == "${name}"` })),
        ),
      },
    })
    const { jobId, counts } = summaryOf(ran)
    expect(counts).toMatchObject({ total: 5, successful: 2, failed: 3 })
    expect(world.mark('asked')).toBe('--|--help|-x--help|')
    expect(world.lines('captured')).toEqual(['before here marks'])
    const [folder, option, big] = await world.letters(jobId)
    expect(folder).toMatchObject({
      ...{ itemId: 'item-0', message: expect.stringContaining('there is no worktree for item-0') },
      body: { failure: { code: 'folder_failed' }, eligible: true },
    })
    expect(option).toMatchObject({
      ...{ name: 'option', message: expect.stringMatching(/^Command 2: .*begins with '-'.*\$\{item.text\}/) },
      body: { failure: { code: 'invalid_value' }, item: { text: '--help' } },
    })
    // More than a letter takes: its captures are not kept, its item is.
    expect(big).toMatchObject({
      name: 'big',
      body: { item: { name: 'big' }, eligible: true, partial: { captures: { cut: expect.any(String) } } },
    })
    expect(world.worktrees()).toEqual([])
  })

  test.concurrent('a handler for which no time is left has made nothing good', async ({ world }) => {
    // What it leaves holds its output for two seconds more.
    const late = { shell: 'sleep 20 & exit 3', on_failure: { shell: 'echo handled >> "$MARKS/handled"' } }
    // The run cannot be put away at its end: its record is no file any more.
    const spoil = 'cd "$XDG_STATE_HOME"/curfew/runs/*/ && rm run.json && mkdir -p run.json/there'
    const ran = await world.run({
      map: { input: ONE, agent_template: [{ shell: 'true' }] },
      reduce: { timeout: 1, commands: [{ shell: spoil }, late] },
    })
    const { status, failure, notes, counts } = summaryOf(ran)
    expect([ran.code, status, counts.successful]).toEqual([1, 'failed', 1])
    expect(failure?.message).toContain('Command 1 (shell) ended with exit code 3')
    expect(world.mark('handled')).toBeNull()
    expect(notes).toEqual([expect.stringMatching(/^The folder of the run is left: .*\/runs\/w_\w+: EISDIR/)])
    expect(ran.stderr).toContain(notes[0])
  })
})

describe('items', () => {
  const numbers = [5, 3, 9, 1, 7, 2].map((n) => ({
    n,
    name: `n${n}`,
    of: { kind: n % 2 === 0 ? 'even' : 'odd' },
  }))
  const template = { max_parallel: 1, agent_template: [{ shell: 'echo "${item.n}" >> "$MARKS/order"' }] }

  test.concurrent('json_path, filter, sort_by, offset and max_items choose them, in this order', async ({
    world,
  }) => {
    world.write('items.json', JSON.stringify({ some: { numbers } }))
    const map = {
      ...{ input: 'items.json', json_path: '$.some.numbers[*]', filter: 'item.of.kind == "odd"' },
      ...{ sort_by: 'n desc', offset: 1, max_items: 3, ...template },
    }
    const chosen = await world.run({ map })
    expect(chosen.code, chosen.stderr).toBe(0)
    expect(world.lines('order')).toEqual(['7', '5', '3'])
    const fewer = await world.run({ map }, ['--max-items', '1'])
    expect(summaryOf(fewer).counts).toMatchObject({ total: 1, successful: 1 })
    expect(world.lines('order').slice(3)).toEqual(['7'])
  })

  test.concurrent('a command lists them, as JSON or line by line', async ({ world }) => {
    world.write('sub/a.txt', '')
    world.write('sub/b c.txt', '')
    world.commit('Files')
    const lines = await world.run({
      map: {
        ...{ input: { command: 'git ls-files sub' }, max_parallel: 1 },
        agent_template: [{ shell: 'test -f "${item}"; echo "${item}" >> "$MARKS/files"' }],
      },
    })
    expect(lines.code, lines.stderr).toBe(0)
    expect(world.lines('files')).toEqual(['sub/a.txt', 'sub/b c.txt'])
    const json = await world.run({
      map: { input: { command: `printf '%s' '${JSON.stringify(numbers.slice(0, 2))}'` }, ...template },
    })
    expect(json.code, json.stderr).toBe(0)
    expect(world.lines('order')).toEqual(['5', '3'])
    const broken = await world.run({ map: { input: { command: 'echo why >&2; exit 4' }, ...template } })
    expect(broken.code).toBe(1)
    expect(summaryOf(broken).failure?.message).toBe('map.input: the command ended with exit code 4: why')
  })

  test.concurrent('G4: with none there is nothing to do, and it is reduced', async ({ world }) => {
    for (const items of [[], numbers]) {
      const ran = await world.run({
        map: { input: { items }, filter: 'item.n > 100', ...template },
        reduce: [{ shell: 'echo "${map.total} ${map.failed}" >> "$MARKS/reduced"' }],
      })
      expect(ran.code, ran.stderr).toBe(0)
      expect(summaryOf(ran)).toMatchObject({
        ...{ status: 'completed', deadLetters: 0, slowest: [], timeouts: [] },
        counts: { total: 0, successful: 0, failed: 0, cancelled: 0 },
      })
      expect(ran.stderr).not.toContain('NaN')
    }
    expect(world.lines('reduced')).toEqual(['0 0', '0 0'])
    expect(world.mark('order')).toBeNull()
  })

  test.concurrent('a file of items that is missing, or holds none, is told', async ({ world }) => {
    const missing = await world.run({ map: { input: 'missing.json', ...template } })
    expect(missing.code).toBe(1)
    expect(summaryOf(missing).failure).toMatchObject({
      code: 'input_not_found',
      message: expect.stringContaining('missing.json cannot be read (ENOENT)'),
    })
    world.write('wrong.json', '{"list":[1,2]}')
    const wrong = await world.run({ map: { input: 'wrong.json', ...template } })
    expect(wrong.code).toBe(1)
    expect(summaryOf(wrong).failure).toMatchObject({
      message: expect.stringMatching(/^the input is no list of items\n.*json_path/),
    })
  })
})
