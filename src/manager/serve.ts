/** An engine that listens: its services on the wire. */
import type { ConnectRouter } from '@connectrpc/connect'
import { ClusterService, GetStatusResponseSchema, MetricSchema } from '../wire/gen/curfew/v1/cluster_pb.ts'
import { JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import type { HttpServer, TlsOptions } from '../wire/http-server.ts'
import { startHttpServer } from '../wire/http-server.ts'
import type { ListenAddress } from '../wire/listen-rules.ts'
import { fromPlain } from '../wire/plain.ts'
import { reportsFromBytes, reportsFromWire } from '../wire/quick-reports.ts'
import { downToBytes } from '../wire/quick-starts.ts'
import { asBytes, quickStream } from '../wire/quick-stream.ts'
import { asMessage, quickMethod } from '../wire/quick-unary.ts'
import type { Tokens } from '../wire/tokens.ts'
import type { Engine } from './engine.ts'
import { jobService } from './job-service.ts'
import { workerService } from './worker-service.ts'

export interface ServeOptions {
  address: ListenAddress
  tokens?: Tokens | undefined
  tls?: TlsOptions | undefined
  hosts?: readonly string[] | undefined
}

export function serve(engine: Engine, options: ServeOptions): Promise<HttpServer> {
  const { clock, logger, service, ready, started } = engine.serving
  const workers = workerService(engine.serving)
  const jobs = jobService(service, clock)
  const routes = (router: ConnectRouter) => {
    router.service(JobService, jobs)
    router.service(WorkerService, workers.service)
    router.service(ClusterService, {
      getStatus: async () => fromPlain(GetStatusResponseSchema, await service.serverStatus()),
      listMetrics: async () => ({
        metrics: (await service.metrics()).map((metric) => fromPlain(MetricSchema, metric)),
      }),
    })
  }
  const { attach, report, beat } = WorkerService.method
  const { schedule, get, wait, waitMany, watch, cancel, signal } = JobService.method
  const quick = [
    quickStream(attach, workers.follow, downToBytes),
    quickMethod(report, workers.takeReports, { fromBytes: reportsFromBytes, fromMessage: reportsFromWire }),
    quickMethod(beat, workers.service.beat, asMessage(beat.input)),
    quickMethod(schedule, jobs.schedule, asMessage(schedule.input)),
    quickMethod(get, jobs.get, asMessage(get.input)),
    quickMethod(wait, jobs.wait, asMessage(wait.input)),
    quickStream(waitMany, jobs.waitMany, asBytes(waitMany.output)),
    quickStream(watch, jobs.watch, asBytes(watch.output)),
    quickMethod(cancel, jobs.cancel, asMessage(cancel.input)),
    quickMethod(signal, jobs.signal, asMessage(signal.input)),
  ]
  const metrics = () => service.exposition()
  return startHttpServer({ ...options, clock, logger, routes, quick, ready, started, metrics })
}
