import type pg from 'pg'

/**
 * The schema as sorted text that is the same on every supported server: tables with columns, defaults and storage,
 * then constraints, indexes, types, functions and triggers. It names what differs between two schemas; it cannot be run.
 */
export async function dumpSchema(connection: pg.Pool | pg.Client, schema = 'pawl'): Promise<string> {
  const sections: string[] = []
  for (const [title, text] of Object.entries(SECTIONS)) {
    const { rows } = await connection.query<{ line: string }>(text, [schema])
    if (rows.length > 0) sections.push(`-- ${title}\n${rows.map(({ line }) => line).join('\n')}\n`)
  }
  return sections.join('\n')
}

/** Each takes the name of the schema and answers one text per object, in an order that no collation changes. */
const SECTIONS: Readonly<Record<string, string>> = {
  types: `
    SELECT format('TYPE %I.%I AS ENUM (%s)', n.nspname, t.typname,
             (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) FROM pg_enum AS e WHERE e.enumtypid = t.oid)) AS line
    FROM pg_type AS t
    JOIN pg_namespace AS n ON n.oid = t.typnamespace
    WHERE n.nspname = $1 AND t.typtype = 'e'
    ORDER BY t.typname COLLATE "C"`,
  sequences: `
    SELECT format('SEQUENCE %I.%I AS %s START %s INCREMENT %s CACHE %s', s.schemaname, s.sequencename, s.data_type, s.start_value, s.increment_by, s.cache_size) AS line
    FROM pg_sequences AS s
    WHERE s.schemaname = $1
    ORDER BY s.sequencename COLLATE "C"`,
  tables: `
    SELECT format(E'TABLE %I.%I%s%s (\\n%s\\n)', n.nspname, c.relname,
             CASE c.relpersistence WHEN 'u' THEN ' UNLOGGED' ELSE '' END,
             coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', ''),
             (SELECT string_agg(
                format('  %I %s%s%s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,
                  CASE a.attidentity WHEN 'a' THEN ' IDENTITY ALWAYS' WHEN 'd' THEN ' IDENTITY BY DEFAULT' ELSE '' END,
                  CASE WHEN d.oid IS NULL THEN '' WHEN a.attgenerated = 's' THEN ' GENERATED ' || pg_get_expr(d.adbin, d.adrelid)
                       ELSE ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) END,
                  CASE WHEN a.attstorage = t.typstorage THEN '' ELSE ' STORAGE ' || a.attstorage::text END,
                  CASE WHEN a.attcompression = '' THEN '' ELSE ' COMPRESSION ' || a.attcompression::text END),
                E',\\n' ORDER BY a.attnum)
              FROM pg_attribute AS a
              JOIN pg_type AS t ON t.oid = a.atttypid
              LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)) AS line
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
    ORDER BY c.relname COLLATE "C"`,
  // PostgreSQL 18 also lists NOT NULL as constraints; the columns say it already.
  constraints: `
    SELECT format('%s: %I %s', c.relname, k.conname, pg_get_constraintdef(k.oid)) AS line
    FROM pg_constraint AS k
    JOIN pg_class AS c ON c.oid = k.conrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND k.contype <> 'n'
    ORDER BY c.relname COLLATE "C", k.conname COLLATE "C"`,
  indexes: `
    SELECT pg_get_indexdef(i.indexrelid) || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END AS line
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1
    ORDER BY c.relname COLLATE "C"`,
  views: `
    SELECT format('VIEW %I.%I AS %s', schemaname, viewname, definition) AS line
    FROM pg_views
    WHERE schemaname = $1
    ORDER BY viewname COLLATE "C"`,
  functions: `
    SELECT pg_get_functiondef(p.oid) AS line
    FROM pg_proc AS p
    JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = $1 AND p.prokind IN ('f', 'p')
    ORDER BY p.proname COLLATE "C", pg_get_function_identity_arguments(p.oid) COLLATE "C"`,
  triggers: `
    SELECT pg_get_triggerdef(t.oid) AS line
    FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = t.tgrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND NOT t.tgisinternal
    ORDER BY c.relname COLLATE "C", t.tgname COLLATE "C"`,
}
