/** Where a command writes. Only the command line prints. */
export interface Terminal {
  /** One line for whoever reads the output. */
  print(line: string): void
  /** One line beside the output: progress, warnings, errors. */
  tell(line: string): void
}

export const terminal: Terminal = {
  print: (line) => void process.stdout.write(`${line}\n`),
  tell: (line) => void process.stderr.write(`${line}\n`),
}

/** Columns as wide as their widest cell; the last is left as it is. */
export function toTable(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const all = [head, ...rows]
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  return all.map((row) =>
    row.map((cell, column) => (column === head.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join('  '),
  )
}
