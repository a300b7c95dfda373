/** The thread that sends the beats of a worker. */
import { parentPort, workerData } from 'node:worker_threads'
import { SystemClock } from '../core/system-clock.ts'
import type { BeatTarget } from './send-beat.ts'
import { sendBeat } from './send-beat.ts'
import { WorkerLease } from './worker-lease.ts'

const { shared, everyMs } = workerData as { shared: SharedArrayBuffer; everyMs: number }
const lease = new WorkerLease(shared)
const clock = new SystemClock()
let target: BeatTarget | null = null

parentPort?.on('message', (next: BeatTarget | null) => {
  target = next
})

function arm(): void {
  clock.setTimer(everyMs, () => {
    arm()
    const sentTo = target
    if (!sentTo) return
    void sendBeat(sentTo, clock).then((beat) => {
      if (!beat || target !== sentTo) return
      if (beat.unknown) return parentPort?.postMessage('unknown')
      lease.renew(beat.sentAt - beat.leaseAgeMs)
    })
  })
}

arm()
