// Runs every race of test/traps 5,000 times (or as often as PAWL_RACES says) on each server, and the gates under churn: `npm run soak:races`.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../', import.meta.url))
const { PAWL_RACES = '5000' } = process.env
const races = ['test/traps', 'test/engine/gates.test.ts']
const { status } = spawnSync(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', '--project', 'node', ...races], {
  cwd: root,
  stdio: 'inherit',
  env: { ...process.env, PAWL_RACES },
})
process.exitCode = status ?? 1
