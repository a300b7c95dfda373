/** The colours of the command line: one table of statuses, and whether there are any. */
import { styleText } from 'node:util'
import type { TaskStatus } from '../core/states.ts'
import type { Io, Output } from './io.ts'

type Style = Parameters<typeof styleText>[0]

const STATUS_STYLES: Record<TaskStatus, Style> = {
  pending: 'gray',
  running: 'cyan',
  cancelling: 'magenta',
  completed: 'green',
  failed: 'red',
  timed_out: 'yellow',
  cancelled: 'magenta',
}

export class Colours {
  readonly #on: boolean

  /** On a terminal, unless NO_COLOR is set or the terminal cannot show any. */
  constructor(io: Io, output: Output) {
    const refused = (io.env.NO_COLOR ?? '') !== '' || io.env.TERM === 'dumb'
    this.#on = output.isTerminal && !refused
  }

  style(style: Style, text: string): string {
    return this.#on ? styleText(style, text, { validateStream: false }) : text
  }

  /** `text` in the colour of the status; the status itself unless given. */
  status(status: string, text = status): string {
    const style = STATUS_STYLES[status as TaskStatus]
    return style === undefined ? text : this.style(style, text)
  }

  dim(text: string): string {
    return this.style('dim', text)
  }

  bold(text: string): string {
    return this.style('bold', text)
  }
}
