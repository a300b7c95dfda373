/** An engine that a command keeps open, as `manager` and `dev` do. */
import { CurfewError } from '../core/errors.ts'
import { maskUrl } from '../core/masked-url.ts'
import type { OpenOptions } from '../curfew.ts'
import type { Config } from './config.ts'
import { listenerOf } from './credentials.ts'
import type { Io } from './io.ts'
import { storeLogger } from './logger.ts'
import type { Flags } from './options.ts'
import type { Ready } from './stay.ts'
import { stay, tellReady } from './stay.ts'

/** Stays until it is told to go. */
export async function keepOpen(
  io: Io,
  flags: Flags,
  config: Config,
  own: Omit<OpenOptions, 'store' | 'listen' | 'turns' | 'queues' | 'witness' | 'logger'>,
  ready: Pick<Ready, 'role' | 'known'>,
): Promise<void> {
  const { store, turns, queueLimits, drain, log } = config.settings
  const listen = await listenerOf(io, config)
  const limits = Object.entries(queueLimits).map(([name, concurrency]) => [name, { concurrency }])
  const { Curfew } = await import('../curfew.ts')
  await stay(io, drain, async () => {
    const curfew = await Curfew.open({
      ...{ store, listen, turns, queues: Object.fromEntries(limits) },
      ...{ witness: true, logger: storeLogger(io, log), ...own },
    })
    const { addresses, nodeId, closed } = curfew
    tellReady(io, flags, { addresses, nodeId, store: maskUrl(store), ...ready })
    return { close: (options) => curfew.close(options), failed: closed.then(storeFailed) }
  })
}

function storeFailed(): never {
  throw new CurfewError('store_failed', 'the store failed; nothing more was acknowledged', {
    hint: 'The log says why. Look at the disk before you start again.',
  })
}
