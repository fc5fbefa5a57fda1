import { styleText } from 'node:util'

/** Tells what happens, with the time since the beginning, and whether it is as expected. */
export class Story {
  readonly #startedAt = performance.now()
  #failures = 0

  tell(text: string): void {
    const seconds = ((performance.now() - this.#startedAt) / 1_000).toFixed(1).padStart(5)
    process.stdout.write(`${styleText('gray', `${seconds} s`)}  ${text}\n`)
  }

  note(text: string): void {
    process.stdout.write(`           ${styleText('gray', text)}\n`)
  }

  /** One expectation of the demo. */
  check(text: string, isTrue: boolean, found: unknown = ''): void {
    if (!isTrue) this.#failures += 1
    const mark = isTrue ? styleText('green', '✓') : styleText('red', '✗')
    const difference = isTrue ? '' : `, found ${JSON.stringify(found)}`
    process.stdout.write(`         ${mark} ${text}${difference}\n`)
  }

  get failures(): number {
    return this.#failures
  }
}
