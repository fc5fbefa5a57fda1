import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }

const root = fileURLToPath(new URL('../../', import.meta.url))

test('the demo survives the crash of its engine, checks everything and ends with 0', { timeout: 120_000 }, async () => {
  const [, script = ''] = manifest.scripts.demo.split(' ')
  const child = spawn(process.execPath, [script], { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  child.stdout.on('data', (chunk) => {
    said += chunk
  })
  const [code] = await once(child, 'close')
  expect(said).toContain('everything is as expected')
  expect(said).not.toContain('✗')
  expect(said).toMatch(/kill -9 \d+: [1-9]\d* steps were in flight/)
  expect(code).toBe(0)
})
