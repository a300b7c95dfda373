import { readdirSync, truncateSync } from 'node:fs'
import path from 'node:path'
import { expect, vi } from 'vitest'
import { hostileValues } from '../../src/definitions/fixtures/hostile-values.ts'
import { worldTest as test } from './world.ts'

// It starts hundreds of processes, and the machine may be busy.
vi.setConfig({ testTimeout: 240_000 })

/** Every place a value can go, with text around it where it has quotes, and what captures it. */
const SHELL = `printf '%s' \${item.value} > "$MARKS/bare-\${item_index}"
printf '%s' "<\${item.value}>" > "$MARKS/double-\${item_index}"
printf '%s' '<\${item.value}>' > "$MARKS/single-\${item_index}"
printf '%s' \${item.value}`

/** What a runner is given as an argument, in its environment, and of what was captured. */
const KEEP = `#!/bin/sh
printf '%s' "$2" > "$MARKS/argument-$INDEX"
printf '%s' "$VALUE" > "$MARKS/variable-$INDEX"
printf '%s' "$CAPTURED" > "$MARKS/captured-$INDEX"
test "$#" = 2 && test ! -e pwned
`

test('values reach commands byte for byte, wherever they stand, and never become code', async ({ world }) => {
  world.program('keep', KEEP)
  expect(hostileValues.length).toBeGreaterThanOrEqual(200)
  world.write('items.json', JSON.stringify(hostileValues.map((value) => ({ value }))))
  const ran = await world.run(
    {
      runners: { keep: ['keep', '--'] },
      map: {
        input: 'items.json',
        agent_template: [
          { shell: SHELL, capture: 'captured' },
          {
            keep: '${item.value}',
            env: { INDEX: '${item_index}', VALUE: '${item.value}', CAPTURED: '${captured}' },
          },
        ],
      },
    },
    ['--no-worktrees'],
  )
  expect(ran.code, ran.stderr.slice(-2_000)).toBe(0)
  expect(ran.json?.counts).toMatchObject({ total: hostileValues.length, successful: hostileValues.length })
  const wrong = hostileValues.flatMap((value, i) => {
    const expected = {
      ...{ bare: value, double: `<${value}>`, single: `<${value}>`, argument: value },
      ...{ variable: value, captured: value.replace(/[\r\n]+$/, '') },
    }
    return Object.entries(expected).flatMap(([place, text]) => {
      const arrived = world.mark(`${place}-${i}`)
      return arrived === text ? [] : [{ place, value: value.slice(0, 100), arrived: arrived?.slice(0, 100) }]
    })
  })
  expect(wrong).toEqual([])
  expect([...readdirSync(world.top), ...readdirSync(world.marks)]).not.toContain('pwned')
})

test('items that are not UTF-8, or by far too many, are refused and not taken for others', async ({
  world,
}) => {
  const map = { agent_template: [{ shell: 'echo ran >> "$MARKS/ran"' }] }
  const listed = await world.run({ map: { ...map, input: { command: "printf 'caf\\351\\n'" } } })
  expect([listed.code, listed.json?.failure?.message]).toMatchObject([
    1,
    expect.stringMatching(/^the output of map.input is not UTF-8/),
  ])
  world.write('items.json', '')
  truncateSync(path.join(world.top, 'items.json'), 3 * 1024 ** 3)
  const large = await world.run({ map: { ...map, input: 'items.json' } })
  expect([large.code, large.json?.failure?.message]).toMatchObject([
    1,
    expect.stringMatching(/items\.json has 3221225472 bytes; at most/),
  ])
  expect(world.lines('ran')).toEqual([])
})
