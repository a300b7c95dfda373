#!/usr/bin/env node
/** The process `curfew`: it starts faster with what Node compiled the last time, and then does what it was asked to. */
import * as nodeModule from 'node:module'
import path from 'node:path'
import { homeFolder } from '../core/home-folder.ts'
import { processIo } from './io.ts'
import { isSupportedNode, NODE_NEEDED } from './node-version.ts'

if (!isSupportedNode(process.versions.node)) {
  process.stderr.write(`error: curfew needs ${NODE_NEEDED}; this is Node ${process.versions.node}\n`)
  process.exit(1)
}
const caches = process.env.XDG_CACHE_HOME || path.join(homeFolder(process.env), '.cache')
// Without one, where it cannot be written, it only starts slower.
nodeModule.enableCompileCache(path.join(caches, 'curfew', 'compiled'))
const { cutShort, main } = await import('./program.ts')

const { stdout, stderr } = process
const args = process.argv.slice(2)
const io = processIo(args)
// 13: nothing is left that could go on.
const onExit = (code: number) => {
  if (code === 0 || code === 13) process.exitCode = cutShort(args, io)
}
process.on('exit', onExit)
process.exitCode = await main(args, io)
process.off('exit', onExit)
// A handler that ignores its signal would keep the process for ever; what was printed has to get out first.
for (const stream of [stdout, stderr]) {
  if (stream.writable) await new Promise<void>((resolve) => stream.write('', () => resolve()))
}
if (io.lostOutput) process.exitCode ||= 1
process.exit()
