// Actions that need no code: a request, and a command in a process of its own:
// node examples/workflows/shell-and-http.ts

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Curfew, TaskFailed, workflow } from '../../src/curfew.ts'

export const countWords = workflow({
  name: 'count-words',
  actions: {
    fetch: {
      kind: 'http_request',
      url: "input.server + '/poems/' + input.poem",
      headers: { accept: "'application/json'" },
      execution: { timeout: '30s', onTimeout: 'retry', retryLimit: 2 },
    },
    count: {
      kind: 'shell',
      // The line is as it stands here. What comes from outside comes as an environment variable, and is quoted.
      command: 'printf "%s" "$TEXT" | wc -w',
      env: { TEXT: 'state.text' },
      execution: { timeout: '10s' },
    },
  },
  nodes: [
    { id: 'fetch', actionId: 'fetch', output: { 'state.text': 'result.body.text' } },
    { id: 'count', actionId: 'count', output: { 'output.words': 'int(result.stdout.trim())' } },
  ],
  transitions: [{ from: 'fetch', to: 'count' }],
})

if (import.meta.main) {
  const server = createServer((request, response) => {
    const found = request.url === '/poems/tea'
    response.writeHead(found ? 200 : 404, { 'content-type': 'application/json' })
    response.end(JSON.stringify(found ? { text: 'steam; "rises" $(slowly)' } : { error: 'no such poem' }))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  // Private addresses are refused unless they are allowed, by host name.
  const curfew = await Curfew.open({
    store: ':memory:',
    workflows: [countWords],
    http: { allowPrivate: ['127.0.0.1'] },
  })
  for (const [host, poem] of [
    ['127.0.0.1', 'tea'],
    ['127.0.0.1', 'coffee'],
    ['localhost', 'tea'],
  ]) {
    const run = await curfew.start(countWords, { server: `http://${host}:${port}`, poem })
    try {
      console.log(await run.result())
    } catch (error) {
      if (!(error instanceof TaskFailed)) throw error
      console.log(error.failure.code)
    }
  }
  await curfew.close()
  server.close()
}
