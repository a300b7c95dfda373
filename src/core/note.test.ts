import { expect, test } from 'vitest'
import { MAX_LETTER_BYTES, MAX_NAME_LENGTH, MAX_NOTED } from './limits.ts'
import type { Note } from './note.ts'
import { checkNote } from './note.ts'

const letter = { errorType: 'timeout', message: 'late' }
const good = { jobId: 'w_01kdvq5x6w0000000000000000', itemId: 'item-0', letter }
const noteOf = (...letters: unknown[]) => ({ events: [], letters }) as unknown as Note

test('dead letters that can be stored are taken as they are', () => {
  const note = noteOf(good, { ...good, letter: null }, { ...good, letter: { ...letter, message: '\0' } })
  expect(checkNote(note, 'note')).toEqual(note)
})

test.each([
  [{ ...good, jobId: 'a\0b' }],
  [{ ...good, jobId: '' }],
  [{ ...good, itemId: 'two words' }],
  [{ ...good, itemId: 'x'.repeat(MAX_NAME_LENGTH + 1) }],
  [{ ...good, itemId: 7 }],
  [{ ...good, letter: { ...letter, errorType: 'else' } }],
  [{ ...good, letter: { errorType: 'timeout' } }],
  [{ ...good, letter: undefined }],
  [{ ...good, letter: { ...letter, body: 'x'.repeat(MAX_LETTER_BYTES) } }],
  [{ ...good, letter: { ...letter, ['__proto__']: 1 } }],
  [null],
])('one that cannot be is refused: %#', (one) => {
  expect(() => checkNote(noteOf(good, one), 'note')).toThrow(
    expect.objectContaining({ code: expect.stringMatching(/^(invalid_request|invalid_json|too_big)$/) }),
  )
})

test('too many at once are refused', () => {
  expect(() => checkNote(noteOf(...Array.from({ length: MAX_NOTED + 1 }, () => good)), 'note')).toThrow(
    /too much/,
  )
})
