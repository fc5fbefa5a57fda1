import { cloudflareTest } from '@cloudflare/vitest-plugin'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    reporters: ['default', './test/support/summary-reporter.ts'],
    maxWorkers: 2,
    fileParallelism: true,
    projects: [
      {
        test: {
          name: 'node',
          include: ['test/**/*.test.ts'],
          exclude: ['test/edge/**'],
          globalSetup: ['test/support/servers.ts'],
          pool: 'forks',
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
      {
        plugins: [
          cloudflareTest({
            // Not newer than the bundled workerd, which would refuse to start.
            miniflare: { compatibilityDate: '2026-11-01', compatibilityFlags: ['nodejs_compat'] },
          }),
        ],
        test: {
          name: 'workerd',
          include: ['test/edge/**/*.test.ts'],
          globalSetup: ['test/support/edge-servers.ts'],
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
})
