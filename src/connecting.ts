/** A client of managers that are somewhere else: `Curfew.connect`. */
import type { ClientCounters } from './client/client-counters.ts'
import { newCounters } from './client/client-counters.ts'
import { ConnectedClient } from './client/connected-client.ts'
import { RemoteTaskService } from './client/remote-task-service.ts'
import { IdSource } from './core/id.ts'
import { SystemClock, SystemRandomness } from './core/system-clock.ts'
import type { Registry } from './definitions/workflow-names.ts'
import type { ConnectionOptions } from './wire/http-client.ts'
import { checkConnection, endpointOf } from './wire/http-client.ts'

/** The same methods as an open engine has, and what this client has met. */
export class ConnectedCurfew extends ConnectedClient {
  readonly counters: Readonly<ClientCounters>

  constructor(service: RemoteTaskService, registry: Registry, counters: ClientCounters) {
    super(service, registry)
    this.counters = counters
  }
}

export function connect(
  urls: readonly string[],
  connection: ConnectionOptions,
  registry: Registry,
): ConnectedCurfew {
  const checked = checkConnection(connection)
  const randomness = new SystemRandomness()
  const counters = newCounters()
  const clock = new SystemClock()
  const service = new RemoteTaskService({
    endpoints: urls.map((url) => endpointOf(url, checked, clock)),
    ...{ clock, randomness, ids: new IdSource(randomness), counters },
  })
  return new ConnectedCurfew(service, registry, counters)
}
