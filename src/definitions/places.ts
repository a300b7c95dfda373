/** Where the parts of a model were written, for problems found once it is whole. Never stored. */
import type { Field } from './definition-field.ts'
import { objectField } from './definition-field.ts'

export class Places {
  readonly root: Field
  readonly #fields = new WeakMap<object, Field>()

  constructor(root: Field) {
    this.root = root
  }

  set(part: object, field: Field): void {
    this.#fields.set(part, field)
  }

  /** The field a part was read from; one that was not written stands for the whole. */
  of(part: object): Field {
    return this.#fields.get(part) ?? this.root
  }
}

const placesOfModels = new WeakMap<object, Places>()

export function keepPlaces(model: object, places: Places): void {
  placesOfModels.set(model, places)
}

/** Of a model that came from the store nothing is known but itself. */
export function placesOf(model: object): Places {
  return placesOfModels.get(model) ?? new Places(objectField(model))
}
