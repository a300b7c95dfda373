import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  clock,
  endTree,
  isUntouched,
  processIn,
  readIfThere,
  SILENT,
  stateOf,
  temporaryFolder,
  until,
} from './fixtures/process-probe.ts'
import { TREE_NAMES } from './fixtures/process-tasks.ts'
import { ProcessTable, startTimeOf } from './process-table.ts'
import type { TreeRoot } from './process-tree.ts'
import { killMarked } from './process-tree.ts'
import { prepareSupervisor, Supervisor } from './supervisor.ts'
import type { ToSupervisor } from './supervisor-messages.ts'

const table = new ProcessTable(clock)
let nodeId: string
let dir: string
let started: { close(): unknown }[]

beforeEach(() => {
  nodeId = `n_${process.pid}_${Math.floor(clock.monotonic())}`
  dir = temporaryFolder()
  started = []
})

afterEach(async () => {
  for (const { close } of started) await close()
  await killMarked({ nodeId }, { clock, table })
  endTree(dir)
  rmSync(dir, { recursive: true, force: true })
})

const obituaryIn = (folder: string) => ({
  module: new URL('./fixtures/obituary.ts', import.meta.url).href,
  argument: { path: join(folder, 'obituary'), failures: 0 },
})

async function startSupervisor(onLost?: () => void): Promise<Supervisor> {
  const options = { nodeId, clock, logger: SILENT, obituary: obituaryIn(dir) }
  const supervisor = await Supervisor.start({ ...options, ...(onLost && { onLost }) })
  started.push({ close: () => supervisor.close() })
  return supervisor
}

/** A worker of its own, running a busy loop and a tree; resolves with its supervisor when both run. */
async function startWorker({ failures = 0, shell = '' } = {}) {
  const program = fileURLToPath(new URL('./fixtures/worker-program.ts', import.meta.url))
  const worker = spawn(
    'sh',
    ['-c', `${shell} exec "$@"`, 'sh', process.execPath, program, JSON.stringify({ nodeId, dir, failures })],
    { stdio: ['ignore', 'inherit', 'inherit'], detached: true },
  )
  started.push({ close: () => worker.kill('SIGKILL') })
  return { worker, supervisor: (await processIn(dir, 'running')).pid }
}

function sleeper(): ChildProcess {
  const child = spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' })
  started.push({ close: () => child.kill('SIGKILL') })
  return child
}

function rootOf({ pid }: { pid?: number | undefined }): TreeRoot {
  return { pid: pid as number, startTime: startTimeOf(pid as number) }
}

const obituary = async () => JSON.parse(await until('the obituary', () => readIfThere(join(dir, 'obituary'))))

describe('a worker that dies', () => {
  test('takes everything it started with it, and its attempts are told', async () => {
    const { worker, supervisor } = await startWorker()
    const members = await Promise.all(TREE_NAMES.map((name) => processIn(dir, name)))
    expect(members.every(({ alive }) => alive())).toBe(true)
    worker.kill('SIGKILL')
    const report = await obituary()
    expect(report).toMatchObject({ nodeId, left: [], pid: supervisor, calls: 1 })
    expect(report.ended).toHaveLength(2)
    expect(report.ended).toContainEqual({ token: 'a_busy:t_busy', receipt: 'killed' })
    expect(report.ended).toContainEqual({ token: 'a_tree:t_tree', receipt: 'killed' })
    // By the time it is told, it is true.
    expect((await table.scan())?.filter(({ nodes, zombie }) => nodes.includes(nodeId) && !zombie)).toEqual([])
    expect(members.map(({ alive }) => alive())).toEqual(members.map(() => false))
    await until('the supervisor to go', () => stateOf(supervisor) === null)
  })

  test('takes it all along although its whole group is killed and the supervisor is asked to go', async () => {
    const { worker, supervisor } = await startWorker()
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.kill(supervisor, signal)
    process.kill(-(worker.pid as number), 'SIGKILL')
    expect((await obituary()).ended).toHaveLength(2)
  })

  test('takes it all along although a process that it was starting holds the channel, and that one later', async () => {
    const at = (file: string) => JSON.stringify(new URL(file, import.meta.url).href)
    const text = `import { spawn } from 'node:child_process'
      import { readdirSync, readlinkSync, writeFileSync } from 'node:fs'
      import { clock, SILENT } from ${at('./fixtures/process-probe.ts')}
      import { commandEnvironment } from ${at('./marker.ts')}
      import { startTimeOf } from ${at('./process-table.ts')}
      import { Supervisor } from ${at('./supervisor.ts')}
      const [nodeId, obituary] = process.argv.slice(1)
      const supervisor = await Supervisor.start({ nodeId, clock, logger: SILENT, obituary: JSON.parse(obituary) })
      const isSocket = (fd) => { try { return readlinkSync('/proc/self/fd/' + fd).startsWith('socket') } catch {} }
      const channel = readdirSync('/proc/self/fd').map(Number).filter((fd) => fd > 2 && isSocket(fd))
      const sleeps = spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' })
      supervisor.register({ pid: sleeps.pid, startTime: startTimeOf(sleeps.pid), token: 'a_sleeps' })
      // As by an exec: it has its mark when it lets go of the channel.
      const marks = Object.entries(commandEnvironment({}, nodeId, 'a_starts')).map((pair) => pair.join('='))
      const close = channel.map((_, i) => i + 3 + '>&-').join(' ')
      const script = 'while [ ! -e go ]; do sleep 0.02; done; exec env "$@" sh -c "exec ' + close + '; sleep 1000; :"'
      const stdio = ['ignore', 'ignore', 'ignore', ...channel]
      const starts = spawn('sh', ['-c', script, 'sh', ...marks], { detached: true, stdio })
      for (const [name, { pid }] of Object.entries({ starts, sleeps, running: supervisor }))
        writeFileSync(name, String(pid))`
    const args = ['--input-type=module', '-e', text, nodeId, JSON.stringify(obituaryIn(dir))]
    const worker = spawn(process.execPath, args, { cwd: dir, stdio: ['ignore', 'inherit', 'inherit'] })
    const supervisor = await processIn(dir, 'running')
    const [starts, sleeps] = await Promise.all(['starts', 'sleeps'].map((name) => processIn(dir, name)))
    started.push({ close: () => starts?.alive() && process.kill(starts.pid, 'SIGKILL') })
    worker.kill('SIGKILL')
    await until('the end of what it had started', () => !sleeps?.alive())
    expect([starts?.alive(), supervisor.alive()]).toEqual([true, true])
    expect(readIfThere(join(dir, 'obituary'))).toBeNull()
    writeFileSync(join(dir, 'go'), '')
    const { ended, left } = await obituary()
    expect([left, starts?.alive()]).toEqual([[], false])
    expect(ended).toContainEqual({ token: 'a_sleeps', receipt: 'killed' })
    await until('the supervisor to go', () => !supervisor.alive())
  })

  test('is told again until somebody has heard it', async () => {
    const { worker } = await startWorker({ failures: 3 })
    worker.kill('SIGKILL')
    expect(await obituary()).toMatchObject({ calls: 4 })
  })
})

describe('the supervisor', () => {
  test('closes without an obituary', async () => {
    const supervisor = await startSupervisor()
    const pid = supervisor.pid as number
    expect(stateOf(pid)).not.toBe(null)
    await supervisor.close()
    expect(stateOf(pid)).toBe(null)
    expect(readIfThere(join(dir, 'obituary'))).toBe(null)
    await supervisor.close()
  })

  test('holds nothing open but its channel, whatever its worker was born with', async () => {
    const { worker, supervisor } = await startWorker({ shell: 'exec 9</dev/full;' })
    const openIn = (pid: number) =>
      readdirSync(`/proc/${pid}/fd`).map((descriptor) => readlinkSync(`/proc/${pid}/fd/${descriptor}`))
    expect(openIn(worker.pid as number)).toContain('/dev/full')
    const open = openIn(supervisor)
    expect(open.filter((name) => name.startsWith('socket:'))).toHaveLength(1)
    expect(open.filter((name) => name.startsWith('/') && name !== '/dev/null')).toEqual([])
    worker.kill('SIGKILL')
    await obituary()
  })

  test('that is killed is replaced, and the new one knows what runs', async () => {
    const lost = Promise.withResolvers<void>()
    const supervisor = await startSupervisor(() => lost.resolve())
    const [kept, released] = [sleeper(), sleeper()] // without a mark: known by being registered alone
    supervisor.register({ ...rootOf(kept), token: 'a_kept' })
    supervisor.register({ ...rootOf(released), token: 'a_released' })
    const first = supervisor.pid as number
    process.kill(first, 'SIGKILL')
    await lost.promise
    supervisor.release(released.pid as number)
    expect(await until('another one', () => supervisor.pid)).not.toBe(first)
    const exited = once(kept, 'exit')
    await supervisor.close() // which ends what it knows of
    expect(await exited).toEqual([null, 'SIGKILL'])
    expect(await isUntouched(released)).toBe(true)
  })

  test('that was started before it was needed is taken, unless it has died meanwhile', async () => {
    const children = async () =>
      (await table.scan())
        ?.filter((one) => one.parent === process.pid && !one.zombie)
        .map(({ pid }) => pid) ?? []
    const prepare = async () => {
      const before = await children()
      prepareSupervisor()
      return (await children()).find((pid) => !before.includes(pid)) as number
    }
    const early = await prepare()
    expect((await startSupervisor()).pid).toBe(early)
    const dead = await prepare()
    process.kill(dead, 'SIGKILL')
    await until('its end', () => stateOf(dead) === null)
    expect((await startSupervisor()).pid).not.toBe(dead)
  })

  test('that lost its channel to a worker that lives ends nothing', async () => {
    const kept = sleeper()
    const program = fileURLToPath(new URL('./supervisor-process.ts', import.meta.url))
    const child = spawn(process.execPath, [program], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    started.push({ close: () => child.kill('SIGKILL') })
    const messages: ToSupervisor[] = [
      { type: 'register', attempt: { ...rootOf(kept), token: 'a_kept' } },
      { type: 'watch', nodeId, worker: rootOf(process), obituary: obituaryIn(dir) },
    ]
    for (const message of messages) child.send(message)
    await once(child, 'message')
    child.disconnect()
    expect(await once(child, 'exit')).toEqual([0, null])
    expect(await isUntouched(kept)).toBe(true)
    expect(readIfThere(join(dir, 'obituary'))).toBe(null)
  })
})
