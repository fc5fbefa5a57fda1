import { execFileSync } from 'node:child_process'
import { cpus, loadavg, platform, release, totalmem } from 'node:os'
import { type BenchServer, readSettings } from './server.ts'

/** What the numbers were made on, as rows of a table. */
export async function describeEnvironment(server: BenchServer): Promise<readonly (readonly [string, string])[]> {
  const settings = await readSettings(server.url)
  const { server_version: version = '?', ...rest } = settings
  return [
    ['date', new Date().toISOString().slice(0, 16).replace('T', ' ')],
    ['commit', readCommit()],
    ['processor', `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, shared by PostgreSQL and the measured process`],
    ['memory', `${Math.round(totalmem() / 2 ** 30)} GiB`],
    ['system', `${platform()} ${release()}`],
    [
      'load before',
      loadavg()
        .map((load) => load.toFixed(2))
        .join(' '),
    ],
    ['Node', process.version],
    ['PostgreSQL', version],
    [
      'settings',
      Object.entries(rest)
        .map(([name, value]) => `${name} ${value}`)
        .join(', '),
    ],
  ]
}

/** What was measured, with a mark when files differ from it. */
function readCommit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, { stdio: ['ignore', 'pipe', 'ignore'] })
      .toString()
      .trim()
  try {
    const changes = git('status', '--porcelain', '--untracked-files=no', '--', '../src')
    return `${git('rev-parse', '--short', 'HEAD')}${changes === '' ? '' : ' with changes'}`
  } catch {
    return 'unknown'
  }
}
