import type { ClaimedRun, EngineStore } from '../core/store.ts'

/** The run with what did not come with its claim, because there is much of it: a page per request until none is left. */
export async function loadSatellites(
  store: Pick<EngineStore, 'loadInbox' | 'loadChildren'>,
  run: ClaimedRun,
): Promise<ClaimedRun> {
  const inbox = [...run.inbox]
  const children = [...run.children]
  for (let more = run.inboxMore; more; ) {
    const page = await store.loadInbox(run.id, run.awaits, inbox.at(-1)?.id ?? '0')
    inbox.push(...page)
    more = page.length > 0
  }
  for (let more = run.childrenMore && run.joinSeq !== null; more; ) {
    const page = await store.loadChildren(run.id, run.joinSeq ?? 0, children.at(-1)?.index ?? -1)
    children.push(...page)
    more = page.length > 0
  }
  return { ...run, inbox, children, inboxMore: false, childrenMore: false }
}
