/** The one place where definitions, calls, store and engine come together. */
import { type Composition, type CreatePawlOptions, createPawlWith, type Pawl, type StoreParams } from './client/create-pawl.ts'
import type { NamedDefinition } from './client/typed-calls.ts'
import { createStore, LaneMemory } from './db/store.ts'
import { createTicker } from './worker/tick.ts'

/** What is known of a database's lanes outlives the stores over it, for as long as the host keeps what stands for the database. */
const lanesByMemory = new WeakMap<object, Map<string, LaneMemory>>()

function lanesOf({ memory, schema, environment }: StoreParams): LaneMemory {
  const byPlace = lanesByMemory.get(memory) ?? new Map<string, LaneMemory>()
  lanesByMemory.set(memory, byPlace)
  const place = JSON.stringify([schema, environment])
  const lanes = byPlace.get(place) ?? new LaneMemory()
  byPlace.set(place, lanes)
  return lanes
}

const composition: Composition = {
  createStore: ({ memory, ...params }) => createStore({ ...params, lanes: lanesOf({ memory, ...params }) }),
  createTicker,
}

/**
 * Puts an application's definitions together, for hosts and for its own calls. Everything is validated here, once; it costs no request
 * and opens nothing.
 * @throws PawlError `invalid_configuration` naming field, got and allowed.
 */
export function createPawl<const D extends readonly NamedDefinition[]>(options: CreatePawlOptions<D>): Pawl<D> {
  return createPawlWith(composition, options)
}
