/**
 * Rows of `runs` that are written where they were locked: found by their place (`ctid`), which costs no index. Of a partitioned table
 * several rows have the same place, one in each partition: so each is asked for its id as well.
 *
 * `from`: a CTE with `place` and `id` of each row; `where`: which of them. The second condition is not one that may become a join (hence IS
 * TRUE): rows are to be found by the first.
 */
export function atPlaces(row: string, from: string, where = ''): string {
  const which = where === '' ? '' : ` WHERE ${where}`
  return `${row}.ctid = ANY (ARRAY(SELECT f.place FROM ${from} f${which})) AND ((${row}.ctid, ${row}.id) IN (SELECT f.place, f.id FROM ${from} f${which})) IS TRUE`
}
