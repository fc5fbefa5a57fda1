import type { Adapter } from './adapter.ts'

/** Loaded one by one, so that a measured process holds nothing of the others. */
const LOADERS: Readonly<Record<string, () => Promise<Adapter>>> = {
  minimal: async () => (await import('./minimal.ts')).minimal,
  pawl: async () => (await import('./pawl.ts')).pawl,
  'pawl-limited': async () => (await import('./pawl.ts')).pawlLimited,
  'pawl-sharded': async () => (await import('./pawl.ts')).pawlSharded,
  'graphile-worker': async () => (await import('./graphile-worker.ts')).graphileWorker,
  'pg-boss': async () => (await import('./pg-boss.ts')).pgBoss,
}

export const adapterNames: readonly string[] = Object.keys(LOADERS)

export function loadAdapter(name: string): Promise<Adapter> {
  const load = LOADERS[name]
  if (load === undefined) throw new Error(`No adapter "${name}": one of ${adapterNames.join(', ')}`)
  return load()
}
