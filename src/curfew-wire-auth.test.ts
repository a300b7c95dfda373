/** Who may call what, over real sockets: roles, addresses, the socket of a file, certificates. */
import { existsSync, statSync } from 'node:fs'
import path from 'node:path'
import type { DescMethod } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { MAX_REFUSED_TOKENS } from './core/limits.ts'
import type { ListenOptions } from './curfew.ts'
import { Curfew, createToken, findHolder, task, tokenText } from './curfew.ts'
import { mayCall } from './wire/access.ts'
import { certificates, hasOpenssl } from './wire/fixtures/certificates.ts'
import { ClusterService } from './wire/gen/curfew/v1/cluster_pb.ts'
import { JobService } from './wire/gen/curfew/v1/jobs_pb.ts'
import { WorkerService } from './wire/gen/curfew/v1/workers_pb.ts'
import type { Role } from './wire/roles.ts'
import { ROLES } from './wire/roles.ts'

const METHODS = [JobService, WorkerService, ClusterService].flatMap(({ typeName, methods }) =>
  methods.map((method) => ({ path: `/${typeName}/${method.name}`, method: method as DescMethod })),
)
const echo = task({ name: 'echo', run: (value: unknown) => value })

/** A token of each role, and what a manager is told of them. */
function tokensOf(roles: readonly Role[] = ROLES) {
  const made = roles.map((role) => ({ role, ...createToken(role) }))
  const tokens = Object.fromEntries(made.map(({ role, token }) => [role, token])) as Record<Role, string>
  return { tokens, listed: made.map(({ entry }) => tokenText(entry)) }
}

/** The status of an empty call, as any program could make it. */
async function call(
  url: string,
  { path: at, method }: (typeof METHODS)[number],
  token?: string,
): Promise<number> {
  const streaming = method.methodKind !== 'unary'
  const stop = new AbortController()
  const response = await fetch(`${url}${at}`, {
    method: 'POST',
    signal: stop.signal,
    headers: {
      'content-type': streaming ? 'application/connect+json' : 'application/json',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    },
    body: streaming ? new Uint8Array([0, 0, 0, 0, 2, 0x7b, 0x7d]) : '{}',
  })
  stop.abort()
  return response.status
}

onEachWire(
  'a manager that asks who calls',
  (test) => {
    test('lets every role call what it may, and nothing else', async ({ wire }) => {
      const { tokens, listed } = tokensOf()
      const listen = { address: '127.0.0.1:0', tokens: listed }
      // Many calls without a token from one address are cut short, so that each address gets a few.
      const manager = await wire.manager({ listen: [listen, listen, listen] })
      const [url = '', second = '', third = ''] = manager.addresses
      expect(METHODS.length).toBeGreaterThan(20)
      for (const [i, each] of METHODS.entries()) {
        for (const role of ROLES) {
          const status = await call(url, each, tokens[role])
          if (mayCall(role, each.path))
            expect([each.path, role, [401, 403].includes(status)]).toEqual([each.path, role, false])
          else expect([each.path, role, status]).toEqual([each.path, role, 403])
        }
        expect([each.path, await call(i % 2 ? second : third, each)]).toEqual([each.path, 401])
      }
      const metrics = async (role?: Role) => {
        const headers = role ? { authorization: `Bearer ${tokens[role]}` } : {}
        return (await fetch(`${url}/metrics`, { headers })).status
      }
      expect(
        await Promise.all(['read-only', 'worker', undefined].map((role) => metrics(role as Role))),
      ).toEqual([200, 403, 401])
      for (const open of ['/healthz', '/readyz']) expect((await fetch(`${url}${open}`)).status).toBe(200)
      // A token of nobody, a token in the wrong place, two at once.
      const stranger = createToken('admin').token
      expect(await call(url, METHODS[0] as (typeof METHODS)[number], stranger)).toBe(401)
      const asked = await fetch(`${url}/metrics?authorization=Bearer%20${tokens.admin}`)
      expect(asked.status).toBe(401)
      // Nothing of all that has changed anything.
      expect(await manager.list()).toEqual({ tasks: [], cursor: null })
      expect(await manager.workers()).toEqual([])
    })

    test('is used by clients and workers with tokens, each for its part', async ({ wire }) => {
      const { tokens, listed } = tokensOf()
      const manager = await wire.manager({ listen: { address: '127.0.0.1:0', tokens: listed } })
      await wire.work(manager, { tasks: [echo], token: tokens.worker })
      const client = await wire.connect(manager, { token: tokens.client })
      expect(await (await client.schedule(echo, 1)).result()).toBe(1)
      const reader = await wire.connect(manager, { token: tokens['read-only'] })
      expect((await reader.list()).tasks).toHaveLength(1)
      await expect(reader.schedule(echo, 2)).rejects.toMatchObject({ code: 'permission_denied' })
      for await (const view of reader.watch((await reader.list()).tasks[0]?.id as string))
        expect(view.final).toBe(true)
      const nobody = await wire.connect(manager)
      await expect(nobody.list()).rejects.toMatchObject({ code: 'unauthenticated' })
      await expect(nobody.watch('t_1').next()).rejects.toMatchObject({ code: 'unauthenticated' })
      await expect(wire.work(manager, { tasks: [echo], token: tokens.client })).rejects.toMatchObject({
        code: 'permission_denied',
      })
      await expect(wire.work(manager, { tasks: [echo] })).rejects.toMatchObject({ code: 'unauthenticated' })
      expect(await manager.workers()).toHaveLength(1)
    })

    test('takes a token that was read from a file with its line end; one that is none is told at once', async ({
      wire,
    }) => {
      const { tokens, listed } = tokensOf()
      const manager = await wire.manager({ listen: { address: '127.0.0.1:0', tokens: listed } })
      await wire.work(manager, { tasks: [echo], token: `${tokens.worker}\n` })
      const client = await wire.connect(manager, { token: `${tokens.client}\r\n` })
      expect(await (await client.schedule(echo, 1)).result()).toBe(1)
      for (const token of ['two\nlines', 'k\u00e4se', Buffer.from(tokens.client) as never]) {
        const none = { code: 'invalid_option', message: expect.not.stringContaining(String(token)) }
        await expect(wire.connect(manager, { token })).rejects.toMatchObject(none)
        await expect(wire.work(manager, { tasks: [echo], token })).rejects.toMatchObject(none)
      }
    })

    test('tells whoever shows a token of nobody so, however often it does', async ({ wire }) => {
      const { tokens, listed } = tokensOf()
      const manager = await wire.manager({ listen: { address: '127.0.0.1:0', tokens: listed } })
      const { token } = createToken('admin')
      const stranger = await wire.connect(manager, { token })
      for (let i = 0; i <= MAX_REFUSED_TOKENS; i++)
        await expect(stranger.list()).rejects.toMatchObject({ code: 'unauthenticated' })
      const worker = await Curfew.work({ managers: manager.url as string, token, logger: wire.logger })
      wire.atEnd(() => worker.close())
      await expect(worker.attached()).rejects.toMatchObject({ code: 'unauthenticated' })
      await wire.work(manager, { token: tokens.worker })
    })

    test('does not start on an address that strangers reach without tokens, and leaves nothing open', async ({
      wire,
    }) => {
      const refused = async (listen: NonNullable<Parameters<typeof Curfew.open>[0]['listen']>) => {
        const opened = await Curfew.open({ store: wire.store, listen, logger: wire.logger }).catch(
          (error: { code: string }) => error.code,
        )
        if (typeof opened !== 'string') await opened.close()
        return opened
      }
      const { listed } = tokensOf(['client'])
      expect(await refused('0.0.0.0:0')).toBe('unsafe_listen')
      expect(await refused(['127.0.0.1:0', '[::]:0'])).toBe('unsafe_listen')
      expect(await refused({ address: '0.0.0.0:0', tls: { cert: 'x', key: 'y' } })).toBe('unsafe_listen')
      expect(await refused({ address: '0.0.0.0:0', tokens: ['client:secret'] })).toBe('invalid_option')
      expect(existsSync(wire.store)).toBe(false)
      expect(existsSync(`${wire.store}.lock`)).toBe(false)
      const taken = await wire.manager({ store: path.join(wire.folder, 'other.db') })
      expect(await refused((taken.url as string).replace('http://', ''))).toBe('cannot_listen')
      expect(existsSync(`${wire.store}.sock`)).toBe(false)
      // Whoever may is not kept from it by those who may not.
      const manager = await wire.manager({ listen: { address: '0.0.0.0:0', tokens: listed } })
      expect(manager.url).toMatch(/^http:\/\/0\.0\.0\.0:\d+$/)
      expect(wire.log.some(({ message }) => /in the clear/.test(message))).toBe(true)
      const port = new URL(manager.url as string).port
      expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200)
    })

    test('over a file has a socket that only its user can open, and that is gone with it', async ({
      wire,
    }) => {
      const manager = await wire.open({ listen: undefined as never, tasks: [echo] })
      const socket = `${path.resolve(wire.store)}.sock`
      expect(manager.addresses).toEqual([`unix:${socket}`])
      expect(manager.url).toBeNull()
      expect(statSync(socket).mode & 0o777).toBe(0o600)
      expect(findHolder(wire.store)).toMatchObject({ socket })
      const client = await wire.connect(`unix:${socket}`)
      expect(await (await client.schedule(echo, 'here')).result()).toBe('here')
      await manager.close()
      expect(existsSync(socket)).toBe(false)
      const silent = await wire.open({ listen: false })
      expect([silent.addresses, existsSync(socket)]).toEqual([[], false])
    })

    test('over a file has its socket later, if it is asked to', async ({ wire }) => {
      const socket = `${path.resolve(wire.store)}.sock`
      const soon = await wire.open({ listen: undefined as never, tasks: [echo], listenAfter: '50ms' })
      expect(soon.addresses).toEqual([])
      await expect.poll(() => soon.addresses, { timeout: 10_000 }).toEqual([`unix:${socket}`])
      expect(findHolder(wire.store)).toMatchObject({ socket })
      await soon.close()
      // One that is closed before it listens never does.
      const late = await wire.open({ listen: undefined as never, tasks: [echo], listenAfter: '1h' })
      await late.close()
      expect(existsSync(socket)).toBe(false)
      const wrong = Curfew.open({ store: wire.store, listenAfter: 'soon' as never, logger: wire.logger })
      await expect(wrong).rejects.toThrow(/listenAfter/)
    })

    test.runIf(hasOpenssl)('speaks TLS, and knows callers by their certificates', async ({ wire }) => {
      const own = certificates(wire.folder, 'own')
      const theirs = certificates(wire.folder, 'theirs')
      const { cert, key } = own.server
      const manager = await wire.manager({
        listen: [
          { address: '127.0.0.1:0', tls: { cert, key } },
          { address: '127.0.0.1:0', tls: { cert, key, clientCa: own.ca } },
          { address: '127.0.0.1:0' },
        ],
      })
      const [open = '', closed = '', plain = ''] = manager.addresses
      expect(open).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
      const client = await wire.connect(open, { tls: { ca: own.ca } })
      await wire.work(closed, { tasks: [echo], tls: { ca: own.ca, ...own.client } })
      expect(await (await client.schedule(echo, 'safe')).result()).toBe('safe')
      const known = await wire.connect(closed, { tls: { ca: own.ca, ...own.client } })
      expect((await known.serverStatus()).workers).toBe(1)
      // It is heard of: its beats have the certificate too.
      const [attached] = await known.workers()
      await until(async () => ((await known.workers())[0]?.heardAt ?? 0) > (attached?.heardAt ?? 0) + 500)
      // A server nobody vouches for, a caller without a certificate, one of somebody else's, one without TLS, one with.
      const strangers = [
        [open, {}, 'untrusted_certificate'],
        [open, { tls: { ca: theirs.ca } }, 'untrusted_certificate'],
        // Why may come too late: the connection is cut by then.
        [closed, { tls: { ca: own.ca } }, /^(unauthenticated|unreachable)$/],
        [closed, { tls: { ca: own.ca, ...theirs.client } }, /^(unauthenticated|unreachable)$/],
        [open.replace('https', 'http'), {}, 'unreachable', 'try https:// instead'],
        [plain.replace('http', 'https'), { tls: { ca: own.ca } }, 'no_tls', 'Try http:// instead'],
      ] as const
      const refused = strangers.map(async ([url, options, code, hint = '']) => {
        const caller = await wire.connect(url, options)
        await expect(caller.serverStatus()).rejects.toMatchObject({
          ...{ code: expect.stringMatching(code), hint: expect.stringContaining(hint) },
          message: expect.not.stringMatching(/\n\s*\n/),
        })
      })
      await Promise.all(refused)
      expect((await client.serverStatus()).ready).toBe(true)
    })

    test.runIf(hasOpenssl)(
      'refuses certificates and keys that are none before anything is open',
      async ({ wire }) => {
        const { ca, server, client } = certificates(wire.folder, 'own')
        const refused = (tls: NonNullable<ListenOptions['tls']>) =>
          Curfew.open({ store: wire.store, listen: { address: '127.0.0.1:0', tls }, logger: wire.logger })
        const not = (what: RegExp) => ({ code: 'invalid_option', message: expect.stringMatching(what) })
        await expect(refused({ ...server, cert: 'none' })).rejects.toMatchObject(not(/^tls\.cert holds no/))
        await expect(refused({ ...server, clientCa: '' })).rejects.toMatchObject(
          not(/^tls\.clientCa holds no/),
        )
        await expect(refused({ ...server, key: client.key })).rejects.toMatchObject(
          not(/tls\.key cannot be used/),
        )
        const url = 'https://127.0.0.1:1'
        for (const [tls, what] of [
          [{ ca: 'none' }, /^tls\.ca holds no/],
          [{ ca, ...client, key: server.key }, /^tls cannot be used/],
        ] as const) {
          await expect(wire.connect(url, { tls })).rejects.toMatchObject(not(what))
          await expect(wire.work(url, { tasks: [echo], tls })).rejects.toMatchObject(not(what))
        }
        // Nobody has the store.
        await wire.manager()
      },
    )
  },
  ['file'],
)
