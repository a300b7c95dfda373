/**
 * Listeners of a signal that come and go with every request. One that `removeEventListener` has taken out still points
 * to the next: what an old one leads to, all the requests since, is kept until a full collection.
 */
class Listener {
  callback: (() => void) | null
  before: Listener | null = null
  after: Listener | null = null

  constructor(callback: (() => void) | null) {
    this.callback = callback
  }
}

/** The first of each: it stays, and stands for nobody. */
const firsts = new WeakMap<AbortSignal, Listener>()

/** Answers how to stop listening. Of a signal that is aborted already nothing is heard. */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const first = firsts.get(signal) ?? listen(signal)
  const own = new Listener(callback)
  own.before = first
  own.after = first.after
  if (own.after) own.after.before = own
  first.after = own
  return () => remove(own)
}

function listen(signal: AbortSignal): Listener {
  const first = new Listener(null)
  firsts.set(signal, first)
  signal.addEventListener(
    'abort',
    () => {
      for (let own = first.after; own; own = first.after) {
        const { callback } = own
        remove(own)
        callback?.()
      }
    },
    { once: true },
  )
  return first
}

function remove(own: Listener): void {
  const { before, after } = own
  if (before) before.after = after
  if (after) after.before = before
  own.before = null
  own.after = null
  own.callback = null
}
