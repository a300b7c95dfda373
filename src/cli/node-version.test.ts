import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { isSupportedNode, NODE_NEEDED } from './node-version.ts'

test('Node is refused where the package says that it does not run there', () => {
  const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as { engines: { node: string } }
  expect(engines.node).toBe('^22.22.3 || >=24.15')
  expect(NODE_NEEDED).toMatch(/22\.22\.3 .*24\.15/)
  const supported = ['22.22.3', '22.23.0', '24.15.0', '24.21.0', '25.0.0', '26.1.0-nightly2026']
  const others = ['18.20.4', '20.19.2', '22.22.2', '22.9.9', '23.11.0', '24.14.9']
  expect(supported.filter((version) => !isSupportedNode(version))).toEqual([])
  expect(others.filter(isSupportedNode)).toEqual([])
})
