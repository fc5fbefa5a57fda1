import type { Database } from '../../src/core/database.ts'

/** The same database, sent other SQL. */
export function rewriting(database: Database, rewrite: (sql: string) => string): Database {
  return {
    driver: database.driver,
    requests: 0,
    query: (statement) => database.query(statement),
    batch: (statements) => database.batch(statements),
    close: () => database.close(),
    transaction: (fn) =>
      database.transaction!((tx) => fn({ query: (s) => tx.query(s), execute: (sql) => tx.execute(rewrite(sql)) })),
  }
}
