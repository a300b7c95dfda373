/** SQLite's errors by what to do about them. */
import { StoreError } from '../store-error.ts'

const SQLITE_BUSY = 5
const SQLITE_READONLY = 8
const SQLITE_IOERR = 10
const SQLITE_IOERR_LOCK = 3_850
/** To open, to lengthen and to map the file of the shared memory: there may be no space for it. */
const SQLITE_IOERR_SHARED = [4_618, 4_874, 5_386]
const SQLITE_CORRUPT = 11
const SQLITE_FULL = 13
const SQLITE_CANTOPEN = 14
const SQLITE_NOTADB = 26

export function isBusy(error: unknown): boolean {
  return primaryCode(error) === SQLITE_BUSY
}

/** The file or one beside it: not readable, or not to be made. */
export function isCannotOpen(error: unknown): boolean {
  return (
    [SQLITE_READONLY, SQLITE_CANTOPEN].includes(primaryCode(error)) ||
    SQLITE_IOERR_SHARED.includes(errorCode(error))
  )
}

/** Of a file that is read-only, or on a file system without locks. */
export function isCannotLock(error: unknown): boolean {
  return errorCode(error) === SQLITE_IOERR_LOCK
}

export function sqliteError(error: unknown, where: string): StoreError {
  const message = (error as Error).message
  switch (primaryCode(error)) {
    case SQLITE_FULL:
      return new StoreError('store_full', `${where}: the disk is full, nothing was written`, {
        hint: 'Work goes on by itself once there is space.',
        cause: error,
      })
    case SQLITE_BUSY:
      return new StoreError('store_conflict', `${where}: ${message}`, { cause: error })
    case SQLITE_NOTADB:
      return new StoreError('store_failed', `${where} is not a SQLite database`, { cause: error })
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
      return new StoreError('store_failed', `${where}: ${message}`, {
        hint: 'The disk or the file is damaged; nothing is acknowledged any more.',
        cause: error,
      })
    default:
      return new StoreError('store_refused', `${where}: ${message}`, { cause: error })
  }
}

function primaryCode(error: unknown): number {
  return errorCode(error) & 0xff
}

function errorCode(error: unknown): number {
  return (error as { errcode?: number }).errcode ?? 0
}
