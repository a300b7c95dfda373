#!/usr/bin/env node
/** The process `curfew`: it starts faster with what Node compiled the last time, and then does what it was asked to. */
import { enableCompileCache } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { processIo } from './io.ts'

const caches = process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache')
// Without one, where it cannot be written, it only starts slower.
enableCompileCache(path.join(caches, 'curfew', 'compiled'))
const { main } = await import('./program.ts')

const { stdout, stderr } = process
const args = process.argv.slice(2)
const io = processIo(args)
process.exitCode = await main(args, io)
// A handler that ignores its signal would keep the process for ever; what was printed has to get out first.
for (const stream of [stdout, stderr]) {
  if (stream.writable) await new Promise<void>((resolve) => stream.write('', () => resolve()))
}
if (io.lostOutput) process.exitCode ||= 1
process.exit()
