// A world of its own for each random trial, gone with it.

import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { inject } from 'vitest'
import { createDatabase, dropDatabase } from '../postgres/database.ts'
import type { StoreKind } from './world.ts'
import { World } from './world.ts'

/** Nothing is really killed here, so nothing has to outlive the machine. */
const FOLDER = path.join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'curfew-trial-')

export async function inTrialWorld<T>(kind: StoreKind, play: (world: World) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(FOLDER)
  const file = kind === 'file' ? path.join(folder, 'trial.db') : ':memory:'
  const store = kind === 'postgres' ? await createDatabase(inject('postgresUrl')) : file
  const world = new World(kind, store, folder)
  try {
    return await play(world)
  } finally {
    await world.dispose()
    if (kind === 'postgres') await dropDatabase(store)
    await rm(folder, { recursive: true, force: true })
  }
}
