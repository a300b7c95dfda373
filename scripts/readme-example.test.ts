import { expect, test } from 'vitest'
import { firstExample, missingLines } from './readme-example.ts'

const fence = '```'

test('the first ts block is the example, and the text block after it what it prints', () => {
  const readme = `# x\n${fence}sh\nnpm i\n${fence}\n${fence}ts\nrun()\n${fence}\nprints\n${fence}text\na 1\n\nb\n${fence}\n${fence}ts\nother()\n${fence}\n`
  expect(firstExample(readme)).toEqual({ source: 'run()\n', output: ['a 1', 'b'] })
})

test('an example may print nothing', () => {
  const readme = `${fence}ts\nrun()\n${fence}\n${fence}sh\nnpm i\n${fence}\n`
  expect(firstExample(readme)).toEqual({ source: 'run()\n', output: [] })
})

test('a README without an example is an error that says so', () => {
  expect(() => firstExample(`# x\n${fence}tsx\nx\n${fence}\n`)).toThrow('README.md has no example')
})

test('numbers, ids, spaces and lines in between do not matter; words and order do', () => {
  const printed = 'started  tsk_0a1b2c3d4e5f6a7b8c9d\nnoise\ncompleted in 13.5 ms\n'
  expect(missingLines(['started tsk_ffffffffffff00000001', '…', 'completed in 9 ms'], printed)).toEqual([])
  expect(missingLines(['failed in 9 ms'], printed)).toEqual(['failed in 9 ms'])
  expect(missingLines(['completed in 9 ms', 'started tsk_ffffffffffff00000001'], printed)).toEqual([
    'started tsk_ffffffffffff00000001',
  ])
})
