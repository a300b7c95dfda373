/**
 * Messages as the plain data of our ports, and back. The names are the same; what is unset is null, except where the
 * port leaves it out; a `Value` is JSON.
 */
import type { DescField, DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import { create, fromJson, toJson } from '@bufbuild/protobuf'
import type { Value } from '@bufbuild/protobuf/wkt'
import { ValueSchema } from '@bufbuild/protobuf/wkt'
import { MAX_MESSAGE_DEPTH } from '../core/limits.ts'

const VALUE = 'google.protobuf.Value'
const STRUCT = 'google.protobuf.Struct'
/** Their ports have optional fields instead of nulls. */
const LEAVE_OUT = new Set([
  'curfew.v1.Failure',
  'curfew.v1.Progress',
  'curfew.v1.StopReason',
  'curfew.v1.MetricValue',
  'curfew.v1.TraceContext',
])

type Plain = Record<string, unknown>

export function toPlain<T>(schema: DescMessage, message: object): T {
  const source = message as Plain
  const plain: Plain = {}
  const leaveOut = LEAVE_OUT.has(schema.typeName)
  for (const field of schema.fields) {
    const value = source[field.localName]
    if (value === undefined) {
      if (!leaveOut) plain[field.localName] = null
    } else if (field.fieldKind === 'message') {
      plain[field.localName] = messageToPlain(field.message, value as object)
    } else if (field.fieldKind === 'list' && field.listKind === 'message') {
      plain[field.localName] = (value as object[]).map((one) => messageToPlain(field.message, one))
    } else plain[field.localName] = value
  }
  return plain as T
}

function messageToPlain(schema: DescMessage, value: object): unknown {
  if (schema.typeName === VALUE) return toJson(ValueSchema, value as Value)
  return schema.typeName === STRUCT ? value : toPlain(schema, value)
}

export function fromPlain<Desc extends DescMessage>(schema: Desc, plain: object): MessageShape<Desc> {
  const source = plain as Plain
  const init: Plain = {}
  // Where what is unset is left out, null says something.
  const keepsNull = LEAVE_OUT.has(schema.typeName)
  for (const field of schema.fields) {
    const value = source[field.localName]
    if (value === undefined || (value === null && !(keepsNull && isValue(field)))) continue
    if (field.fieldKind === 'message') init[field.localName] = plainToMessage(field.message, value)
    else if (field.fieldKind === 'list' && field.listKind === 'message') {
      init[field.localName] = (value as object[]).map((one) => plainToMessage(field.message, one))
    } else init[field.localName] = value
  }
  return create(schema, init as MessageInitShape<Desc>)
}

function isValue(field: DescField): boolean {
  return field.fieldKind === 'message' && field.message.typeName === VALUE
}

function plainToMessage(schema: DescMessage, value: unknown): unknown {
  if (schema.typeName === VALUE) return valueMessage(value)
  return schema.typeName === STRUCT ? value : fromPlain(schema, value as object)
}

/** Any JSON as a message. */
export function valueMessage(value: unknown): Value {
  return fromJson(ValueSchema, (value ?? null) as never, { recursionLimit: MAX_MESSAGE_DEPTH })
}

export function jsonOf(value: Value | undefined): unknown {
  return value === undefined ? null : toJson(ValueSchema, value)
}
