import type { Reporter, SerializedError, TestModule } from 'vitest/node'

/** Closes the output with one line that a script can read: `123 passed, 0 failed`. Files that cannot be loaded count as failed. */
export default class SummaryReporter implements Reporter {
  #summary = ''

  onInit(): void {
    process.once('exit', () => process.stdout.write(this.#summary))
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    let passed = 0
    let failed = errors.length
    let skipped = 0
    for (const module of modules) {
      failed += module.errors().length
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state === 'passed') passed += 1
        else if (state === 'failed') failed += 1
        else skipped += 1
      }
      for (const suite of module.children.allSuites()) failed += suite.errors().length
    }
    this.#summary = `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`
  }
}
