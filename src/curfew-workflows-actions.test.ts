// The actions that need no code: requests and commands, in real time against a real server and real processes.
import { rmSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { errorOf } from '../scripts/acceptance/world.ts'
import type { OpenOptions, WorkflowDefinition, WorkflowHandle } from './curfew.ts'
import { Curfew, job, loadWorkflow, TaskCancelled, TaskFailed, TaskTimedOut, workflow } from './curfew.ts'
import { processIn, readIfThere, SILENT, temporaryFolder } from './worker/fixtures/process-probe.ts'

const opened: Curfew[] = []

async function open(workflows: WorkflowDefinition[], options: Partial<OpenOptions> = {}): Promise<Curfew> {
  const curfew = await Curfew.open({ store: ':memory:', logger: SILENT, workflows, ...options })
  opened.push(curfew)
  return curfew
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((curfew) => curfew.close()))
})

/** The task that a node began last. */
async function workOf(curfew: Curfew, handle: WorkflowHandle, node = 0) {
  const { tokens } = await handle.run()
  return curfew.task(tokens[node]?.workId ?? '').view()
}

describe('http_request', () => {
  let base: string
  let answer: (request: IncomingMessage, response: ServerResponse) => void
  const seen: { method?: string; url?: string; headers: IncomingMessage['headers']; body: string }[] = []
  const sockets = new Set<Socket>()
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const { method = '', url = '', headers } = request
    seen.push({ method, url, headers, body })
    answer(request, response)
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })

  beforeEach(async () => {
    seen.length = 0
    answer = (_, response) => response.end('hello')
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })

  afterEach(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })

  const http = { allowPrivate: ['127.0.0.1'] }

  test('is made of expressions, and its answer is the result of the node', async () => {
    const publish = loadWorkflow(`
name: publish
actions:
  post:
    kind: http_request
    method: POST
    url: input.base + '/pages/' + string(input.id)
    headers: { Authorization: "'Bearer ' + input.token", X-Count: input.pages.size() }
    body: { title: input.title, pages: "input.pages.map(p, { 'page': p })", limit: 10, draft: false }
    expected_status: [201]
    execution: { timeout: 10s }
nodes:
  - { id: post, action_id: post, output: { state.id: result.body.id, state.type: "result.headers['content-type']" } }
output: { id: state.id, type: state.type, status: result.status }
`)
    answer = (_, response) =>
      response.writeHead(201, { 'content-type': 'application/json' }).end('{"id":7,"tags":[]}')
    const curfew = await open([publish], { http })
    const input = { base, id: 3, token: 'secret', title: 'Ü', pages: ['a', 'b'] }
    const handle = await curfew.start(publish, input)
    expect(await handle.result()).toEqual({ id: 7, type: 'application/json', status: 201 })
    expect(seen).toMatchObject([
      {
        method: 'POST',
        url: '/pages/3',
        headers: { authorization: 'Bearer secret', 'x-count': '2', 'content-type': 'application/json' },
      },
    ])
    expect(JSON.parse(seen[0]?.body ?? '')).toEqual({
      title: 'Ü',
      pages: [{ page: 'a' }, { page: 'b' }],
      limit: 10,
      draft: false,
    })
  })

  const get = workflow({
    name: 'get',
    actions: { get: { kind: 'http_request', url: 'input', execution: { timeout: '10s' } } },
    nodes: [{ id: 'get', actionId: 'get' }],
  })

  test('that goes wrong fails its token: a status, a private address, no address, a redirect', async () => {
    answer = ({ url }, response) => {
      response.writeHead(url === '/moved' ? 301 : 500, { location: 'http://127.0.0.1/' }).end('sorry')
    }
    const curfew = await open([get], { http })
    const failures = await Promise.all(
      [`${base}/broken`, base.replace('127.0.0.1', 'localhost'), 'a.example', `${base}/moved`].map(
        async (url) => (await errorOf((await curfew.start(get, url)).result(), TaskFailed)).failure,
      ),
    )
    expect(failures.map(({ code }) => code)).toEqual([
      'unexpected_status',
      'private_address',
      'invalid_url',
      'unexpected_status',
    ])
    expect(failures[0]).toMatchObject({ details: { status: 500, body: 'sorry' } })
    expect(failures[1]?.message).toContain(`http: { allowPrivate: ['localhost'] }`)
    expect(seen).toHaveLength(2)
  })

  test('an answer that cannot be kept fails its token too', async () => {
    answer = (_, response) => response.setHeader('content-type', 'application/json').end('{"__proto__":{}}')
    const curfew = await open([get], { http })
    const failed = await errorOf((await curfew.start(get, base)).result(), TaskFailed)
    expect(failed.failure.message).toContain("the key '__proto__' is not allowed")
  })

  test.each(['that never answers', 'that never ends its answer'])(
    'X1: one %s is ended at its limit, connection and all',
    async (how) => {
      const slow = workflow({
        name: 'slow',
        actions: { get: { kind: 'http_request', url: 'input', execution: { timeout: 300 } } },
        nodes: [{ id: 'get', actionId: 'get' }],
      })
      answer = (_, response) => {
        if (how === 'that never ends its answer') response.write('begin')
      }
      const curfew = await open([slow], { http })
      const handle = await curfew.start(slow, base)
      const failed = await errorOf(handle.result(), TaskFailed)
      expect(failed.failure.code).toBe('execution_timeout')
      expect((await handle.run()).tokens).toMatchObject([{ node: 'get', status: 'timed_out' }])
      expect(await workOf(curfew, handle)).toMatchObject({ receipt: 'aborted', timeoutKind: 'execution' })
      await vi.waitFor(() => expect(sockets.size).toBe(0))
    },
  )

  test('X6: one that timed out is tried again where that is said', async () => {
    const patient = loadWorkflow(`
name: patient
actions:
  get: { kind: http_request, url: input, execution: { timeout_ms: 400, on_timeout: retry, retry_limit: 2 } }
nodes: [{ id: get, action_id: get, output: { output.body: result.body } }]
`)
    answer = (_, response) => void (seen.length > 1 && response.end('at last'))
    const curfew = await open([patient], { http })
    const handle = await curfew.start(patient, base)
    expect(await handle.result()).toEqual({ body: 'at last' })
    expect((await handle.run()).tokens).toMatchObject([{ status: 'completed', retries: 1 }])
  })

  test('F3: one that is told to stop before its limit has still timed out', async () => {
    const soft = workflow({
      name: 'soft',
      actions: { get: { kind: 'http_request', url: 'input', execution: { timeout: 500, softStop: 300 } } },
      nodes: [{ id: 'get', actionId: 'get' }],
    })
    answer = () => undefined
    const curfew = await open([soft], { http })
    const handle = await curfew.start(soft, base)
    expect((await errorOf(handle.result(), TaskFailed)).failure.code).toBe('execution_timeout')
  })
})

describe('shell', () => {
  let dir: string

  beforeEach(() => {
    dir = temporaryFolder()
  })

  afterEach(() => {
    rmSync(dir, { recursive: true, force: true })
  })

  test('a command is made of templates, and a line has its values as variables; neither makes code of them', async () => {
    const list = loadWorkflow(`
name: list
actions:
  argv: { kind: shell, argv: [printf, "%s|", "--name=\${input.name}", "\${input.n}", "\${input.tags}"], execution: { timeout: 1m } }
  line:
    kind: shell
    command: printf '%s|' "$NAME" "$N" "$TAGS"; pwd
    env: { NAME: input.name, N: input.n + 1, TAGS: input.tags }
    working_dir: \${input.dir}
    execution: { timeout: 1m }
nodes:
  - { id: argv, action_id: argv, output: { state.argv: result.stdout } }
  - { id: line, action_id: line, output: { state.line: result.stdout } }
transitions: [{ from: argv, to: line }]
output: { argv: state.argv, line: state.line }
`)
    const curfew = await open([list])
    const name = `"; touch ${dir}/pwned; $(touch ${dir}/pwned) \`touch ${dir}/pwned\` '; touch ${dir}/pwned #`
    const handle = await curfew.start(list, { name, n: 2, tags: ['a', 'b'], dir })
    expect(await handle.result()).toEqual({
      argv: `--name=${name}|2|["a","b"]|`,
      line: `${name}|3|["a","b"]|${dir}\n`,
    })
    expect(readIfThere(join(dir, 'pwned'))).toBeNull()
  })

  test('X14: one that fails fails its token, with how it ended and what it said', async () => {
    const fails = workflow({
      name: 'fails',
      actions: {
        build: {
          kind: 'shell',
          command: 'echo built half; echo no space left >&2; exit 7',
          execution: { timeout: '1m' },
        },
        absent: { kind: 'shell', argv: ['no-such-program'], execution: { timeout: '1m' } },
      },
      nodes: [{ id: 'build', actionId: 'build' }, { id: 'absent', actionId: 'absent' }, { id: 'fan' }],
      start: 'fan',
      transitions: [
        { from: 'fan', to: 'build', condition: "input == 'build'" },
        { from: 'fan', to: 'absent', condition: "input == 'absent'" },
      ],
    })
    const curfew = await open([fails])
    const handle = await curfew.start(fails, 'build')
    const { failure } = await errorOf(handle.result(), TaskFailed)
    expect(failure).toMatchObject({
      code: 'command_failed',
      message: expect.stringContaining('ended with exit code 7: no space left'),
      details: { exitCode: 7, signal: null, stdout: 'built half\n', stderr: 'no space left\n' },
    })
    expect((await handle.run()).tokens).toMatchObject([{ node: 'fan' }, { node: 'build', status: 'failed' }])
    const absent = await errorOf((await curfew.start(fails, 'absent')).result(), TaskFailed)
    expect(absent.failure).toMatchObject({ code: 'command_not_started', retryable: false })
  })

  /** Ignores TERM, and so does what it starts: in the background, in another session, without environment. */
  const stubborn = `trap '' TERM; echo $$ > main
    (trap '' TERM; exec sleep 1000) & echo $! > background
    setsid sh -c 'trap "" TERM; echo $$ > session; exec sleep 1000' &
    env -i sh -c 'trap "" TERM; echo $$ > bare; exec sleep 1000' &
    echo so far so good; echo but >&2; while :; do sleep 1000; done`
  const names = ['main', 'background', 'session', 'bare']
  const everything = () => Promise.all(names.map((name) => processIn(dir, name)))

  test('X1: one that ignores its signal is killed at its limit, with all it started; what it said is kept', async () => {
    const stuck = workflow({
      name: 'stuck',
      actions: {
        run: {
          kind: 'shell',
          command: stubborn,
          workingDir: '${input}',
          execution: { timeout: '4s', grace: '200ms' },
        },
      },
      nodes: [{ id: 'run', actionId: 'run' }],
    })
    const curfew = await open([stuck])
    const handle = await curfew.start(stuck, dir)
    const processes = await everything()
    expect(processes.map(({ alive }) => alive())).toEqual([true, true, true, true])
    expect((await errorOf(handle.result(), TaskFailed)).failure.code).toBe('execution_timeout')
    expect(processes.map(({ alive }) => alive())).toEqual([false, false, false, false])
    expect(await workOf(curfew, handle)).toMatchObject({
      status: 'timed_out',
      receipt: 'killed',
      details: { stdout: 'so far so good\n', stderr: 'but\n' },
    })
  })

  test('a cancel of the run ends it as well', async () => {
    const stuck = workflow({
      name: 'stuck',
      actions: {
        run: {
          kind: 'shell',
          command: stubborn,
          workingDir: '${input}',
          execution: { timeout: '1m', grace: '100ms' },
        },
      },
      nodes: [{ id: 'run', actionId: 'run' }],
    })
    const curfew = await open([stuck])
    const handle = await curfew.start(stuck, dir)
    const processes = await everything()
    expect(await handle.cancel()).toBe('cancelled')
    const { ledger } = await handle.cancelled()
    expect(ledger).toMatchObject([{ receipt: 'killed' }])
    expect(processes.map(({ alive }) => alive())).toEqual([false, false, false, false])
    await errorOf(handle.result(), TaskCancelled)
  })

  test('F3: one that cleans up when its limit is near has its result', async () => {
    const tidy = workflow({
      name: 'tidy',
      actions: {
        run: {
          kind: 'shell',
          command: `trap 'echo saved; exit 0' TERM; sleep 1000 & wait`,
          execution: { timeout: '6s', softStop: '3s' },
        },
      },
      nodes: [{ id: 'run', actionId: 'run', output: { 'output.said': 'result.stdout' } }],
    })
    const curfew = await open([tidy])
    expect(await (await curfew.start(tidy, null)).result()).toEqual({ said: 'saved\n' })
  })

  test('T3: one that prints moves its job, one that is silent does not', async () => {
    const line = (name: string, command: string) =>
      workflow({
        name,
        actions: { run: { kind: 'shell', command, execution: { grace: '100ms' } } },
        nodes: [{ id: 'run', actionId: 'run', output: { 'output.code': 'result.exitCode' } }],
      })
    const talks = line('talks', 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.4; done')
    const silent = line('silent', 'exec sleep 1000')
    const curfew = await open([talks, silent])
    const submit = (definition: WorkflowDefinition) =>
      curfew.submit(job({ stuckAfter: '3s', workflows: [{ id: 'one', workflow: definition }] }))
    const [loud, quiet] = await Promise.all([submit(talks), submit(silent)])
    expect(await errorOf(quiet.result(), TaskTimedOut)).toMatchObject({ kind: 'stuck' })
    expect(await loud.result()).toEqual({ one: { code: 0 } })
  })

  test('the output of one is data for the next', async () => {
    const words = workflow({
      name: 'words',
      actions: {
        list: {
          kind: 'shell',
          argv: ['printf', '%s\\n', 'one', 'two', 'three'],
          execution: { timeout: '1m' },
        },
        count: {
          kind: 'shell',
          command: 'printf %s "$WORD" | wc -c',
          env: { WORD: 'branch.item' },
          execution: { timeout: '1m' },
        },
      },
      nodes: [
        { id: 'list', actionId: 'list', output: { 'state.words': "result.stdout.trim().split('\\n')" } },
        { id: 'count', actionId: 'count', output: { 'branch.output': 'int(result.stdout.trim())' } },
        { id: 'end' },
      ],
      transitions: [
        { id: 'fan', from: 'list', to: 'count', foreach: { collection: 'state.words' } },
        {
          from: 'count',
          to: 'end',
          synchronization: { strategy: 'all', siblingGroup: 'fan', merge: { target: 'output.letters' } },
        },
      ],
    })
    // It was not given to this process, which has a witness all the same.
    const curfew = await open([], { witness: true })
    expect(await (await curfew.start(words, null)).result()).toEqual({ letters: [3, 3, 5] })
  })

  test('closing in the middle of one ends it; the next start runs it again', async () => {
    const again = workflow({
      name: 'again',
      actions: {
        run: {
          kind: 'shell',
          command: 'if [ -e first ]; then echo second; else echo $$ > first; exec sleep 1000; fi',
          workingDir: '${input}',
          execution: { timeout: '1m' },
        },
      },
      nodes: [{ id: 'run', actionId: 'run', output: { 'output.said': 'result.stdout' } }],
    })
    const store = join(dir, 'curfew.db')
    const curfew = await open([again], { store })
    const { id } = await curfew.start(again, dir)
    const first = await processIn(dir, 'first')
    await curfew.close()
    expect(first.alive()).toBe(false)
    const reopened = await open([again], { store })
    expect(await reopened.workflow(id).result()).toEqual({ said: 'second\n' })
  })
})
