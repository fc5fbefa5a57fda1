// Runs every race of test/traps 5,000 times (or as often as PAWL_RACES says) on each server: `npm run soak:races`.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../', import.meta.url))
const { PAWL_RACES = '5000' } = process.env
const { status } = spawnSync(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', '--project', 'node', 'test/traps'], {
  cwd: root,
  stdio: 'inherit',
  env: { ...process.env, PAWL_RACES },
})
process.exitCode = status ?? 1
