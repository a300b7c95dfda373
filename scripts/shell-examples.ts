// The commands of a page (```sh) and the answers it shows beneath them (```json, ```text): found, run in one shell,
// and compared.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { missingLines } from './readme-example.ts'

export interface ShellExample {
  /** Where it stands in the page. */
  line: number
  script: string
  /** Null: it is not said that it prints anything. */
  answer: { language: 'json' | 'text'; text: string } | null
}

/** An answer is the block that follows its commands, below the same heading. */
export function shellExamples(page: string): ShellExample[] {
  const blocks = [...page.matchAll(/^```(\w*)[^\n]*\n(.*?)^```[ \t]*$/gms)].map((match) => ({
    ...{ language: match[1] ?? '', text: match[2] ?? '', start: match.index },
    end: match.index + match[0].length,
  }))
  return blocks.flatMap(({ language, text, start, end }, i) => {
    if (language !== 'sh') return []
    const next = blocks[i + 1]
    const isAnswer =
      (next?.language === 'json' || next?.language === 'text') && !/^#/m.test(page.slice(end, next.start))
    return {
      ...{ line: page.slice(0, start).split('\n').length, script: text },
      answer: isAnswer ? { language: next.language as 'json' | 'text', text: next.text } : null,
    }
  })
}

/** The text below a heading, up to the next one of its rank or above. */
export function sectionOf(page: string, title: string): string {
  const heading = new RegExp(`^(#+) ${title}$`, 'm').exec(page)
  if (!heading) throw new Error(`there is no heading '${title}'`)
  const rest = page.slice(heading.index + heading[0].length)
  const end = new RegExp(`^#{1,${heading[1]?.length}} `, 'm').exec(rest)
  return rest.slice(0, end?.index)
}

export interface Ran {
  /** What each of them printed, as far as it got. */
  printed: string[]
  exitCode: number | null
  stderr: string
}

/**
 * Runs them one after the other in one shell, so that what one sets the next one has. What they start in the
 * background is ended with the shell.
 */
export async function runExamples(
  examples: readonly ShellExample[],
  { folder, env, timeoutMs }: { folder: string; env: Record<string, string>; timeoutMs: number },
): Promise<Ran> {
  const out = path.join(folder, 'printed')
  await mkdir(out, { recursive: true })
  const parts = examples.map(({ script }, i) => `{\n${script}} > '${out}/${i}'\n`)
  const file = path.join(folder, 'examples.sh')
  await writeFile(file, `set -eu\n${parts.join('\n')}`)
  const shell = spawn('sh', [file], {
    ...{ cwd: folder, detached: true, stdio: ['ignore', 'ignore', 'pipe'] },
    env: { ...process.env, ...env },
  })
  const stderr: string[] = []
  shell.stderr.setEncoding('utf8').on('data', (text: string) => stderr.push(text))
  const over = setTimeout(() => shell.kill('SIGKILL'), timeoutMs)
  try {
    await once(shell, 'exit')
  } finally {
    clearTimeout(over)
    await endGroup(shell.pid as number)
  }
  const printed = await Promise.all(
    examples.map((_, i) => readFile(path.join(out, `${i}`), 'utf8').catch(() => '')),
  )
  return { printed, exitCode: shell.exitCode, stderr: stderr.join('') }
}

/** Managers and workers drain; what does not end is killed. */
async function endGroup(group: number): Promise<void> {
  const until = Date.now() + 10_000
  signalGroup(group, 'SIGTERM')
  while (Date.now() < until && signalGroup(group, 0)) await sleep(50)
  signalGroup(group, 'SIGKILL')
}

/** Whether there is anybody left in it. */
function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
    throw error
  }
}

/** How what was printed differs from what the page shows; none when it has the same shape. */
export function differences({ answer }: ShellExample, printed: string): string[] {
  if (!answer) return printed === '' ? [] : [`it prints something that the page does not show: ${printed}`]
  if (answer.language === 'text')
    return missingLines(answer.text.split('\n'), printed).map((line) => `it did not print: ${line}`)
  try {
    return compare(JSON.parse(answer.text), JSON.parse(printed), 'answer')
  } catch (error) {
    return [`no JSON (${(error as Error).message}): ${printed}`]
  }
}

/**
 * The same keys and types, the same words; ids, numbers and times differ. The key or element `…` stands for any
 * others, the text `…` for any text.
 */
function compare(shown: unknown, printed: unknown, at: string): string[] {
  if (typeof shown === 'string' && typeof printed === 'string')
    return shown === '…' || plain(shown) === plain(printed) ? [] : [`${at} is ${printed}, not ${shown}`]
  if (typeof shown === 'number' && typeof printed === 'number') return []
  if (Array.isArray(shown) && Array.isArray(printed)) {
    const isOpen = shown.at(-1) === '…'
    const known = isOpen ? shown.slice(0, -1) : shown
    if (isOpen ? printed.length < known.length : printed.length !== known.length)
      return [`${at} has ${printed.length} elements, not ${known.length}`]
    return known.flatMap((one, i) => compare(one, printed[i], `${at}[${i}]`))
  }
  if (isObject(shown) && isObject(printed)) {
    const { '…': others, ...known } = shown
    const more = others === undefined ? Object.keys(printed).filter((key) => !(key in known)) : []
    return [
      ...more.map((key) => `${at}.${key} is not shown`),
      ...Object.entries(known).flatMap(([key, value]) =>
        key in printed ? compare(value, printed[key], `${at}.${key}`) : [`${at}.${key} is missing`],
      ),
    ]
  }
  return Object.is(shown, printed)
    ? []
    : [`${at} is ${JSON.stringify(printed)}, not ${JSON.stringify(shown)}`]
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function plain(text: string): string {
  return text.replaceAll(/\b[a-z]_[0-9a-z]{26}\b/g, 'ID').replaceAll(/\d+(?:\.\d+)?(?:ms|s|m|h)?/g, '#')
}

/** One that nobody listens on now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}
