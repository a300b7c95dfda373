/**
 * Values by id, for what comes and goes with every task. A `Map` makes a new table after as many changes as it has
 * places, and each table that it leaves points to the next one: a table that has become old is only looked at by a
 * full collection, and until then it keeps all that follow, with everything that was in them. A quarter of a
 * worker's time went into copying that.
 */

/** Places, of which at most half are taken. */
const SMALLEST = 16

export class IdMap<Value> {
  #ids: (string | null)[] = places(SMALLEST)
  #values: (Value | null)[] = places(SMALLEST)
  #size = 0

  get size(): number {
    return this.#size
  }

  get(id: string): Value | undefined {
    const place = this.#placeOf(id)
    return this.#ids[place] === null ? undefined : (this.#values[place] as Value)
  }

  set(id: string, value: Value): void {
    let place = this.#placeOf(id)
    if (this.#ids[place] === null) {
      if ((this.#size + 1) * 2 > this.#ids.length) {
        this.#grow()
        place = this.#placeOf(id)
      }
      this.#ids[place] = id
      this.#size++
    }
    this.#values[place] = value
  }

  delete(id: string): boolean {
    let gap = this.#placeOf(id)
    if (this.#ids[gap] === null) return false
    this.#size--
    // Whatever is behind it and would be found at the gap moves there: a search ends at the first free place.
    const last = this.#ids.length - 1
    for (let place = (gap + 1) & last; ; place = (place + 1) & last) {
      const next = this.#ids[place] as string | null
      if (next === null) break
      const wanted = hash(next) & last
      if (((place - wanted) & last) < ((place - gap) & last)) continue
      this.#ids[gap] = next
      this.#values[gap] = this.#values[place] as Value
      gap = place
    }
    this.#ids[gap] = null
    this.#values[gap] = null
    return true
  }

  /** All that are there now, in no order. */
  values(): Value[] {
    const values: Value[] = []
    for (let place = 0; place < this.#ids.length; place++)
      if (this.#ids[place] !== null) values.push(this.#values[place] as Value)
    return values
  }

  /** Where it is, or the free place where it would be. */
  #placeOf(id: string): number {
    const last = this.#ids.length - 1
    let place = hash(id) & last
    for (;;) {
      const there = this.#ids[place]
      if (there === null || there === id) return place
      place = (place + 1) & last
    }
  }

  #grow(): void {
    const [ids, values] = [this.#ids, this.#values]
    this.#ids = places(ids.length * 2)
    this.#values = places(ids.length * 2)
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i] as string | null
      if (id === null) continue
      const place = this.#placeOf(id)
      this.#ids[place] = id
      this.#values[place] = values[i] as Value
    }
  }
}

function places(count: number): null[] {
  return new Array<null>(count).fill(null)
}

/** Of the end, where ids differ. */
const HASHED = 12

function hash(id: string): number {
  let value = 0
  for (let i = Math.max(0, id.length - HASHED); i < id.length; i++)
    value = Math.imul(value ^ id.charCodeAt(i), 0x9e3779b1)
  return value ^ (value >>> 15)
}
