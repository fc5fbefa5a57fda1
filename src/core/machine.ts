import { MAX_STEPS, MAX_VERSION } from './bounds.ts'
import type { ErrorFacts, SignalMap, StepContext } from './context.ts'
import {
  type AnyDefinition,
  bareRecord,
  type CommonOptions,
  checkCronInputs,
  checkFunction,
  checkSchema,
  type Definition,
  definitionRuntime,
  type RuntimeStep,
  toCall,
  toCommonFields,
} from './definition.ts'
import { notAllowed } from './errors.ts'
import { checkInteger, checkName } from './names.ts'
import { makeOutcomeFunctions, type Outcome } from './outcome.ts'
import { type In, isSchema, type Out, type Schema, type Stored } from './schema.ts'
import { isTopic } from './topics.ts'

type Handler<C, O> = (context: C) => O | Promise<O>

/** The context and the outcome of a machine's steps, from its schemas. */
type ContextOf<
  St extends Schema,
  G extends SignalMap,
  N extends string,
  Ou extends Schema,
  Er extends Schema,
  I extends Schema,
  Ev extends SignalMap,
> = StepContext<Out<St>, G & Ev, N, Out<Ou>, Out<Er>, In<I>, Out<I>>

export interface MachineOptions<
  Name extends string,
  St extends Schema,
  N extends string,
  Ou extends Schema,
  G extends SignalMap,
  Er extends Schema,
  I extends Schema,
  Ev extends SignalMap,
> extends CommonOptions<Out<I>, In<I>> {
  readonly name: Name
  /** Of jobs only: a machine's state is made of one input. */
  readonly batch?: undefined
  /** The typed data of the machine: parsed whenever a step changes it and whenever a step is entered. */
  readonly state: St & Stored<St>
  /** What spawn takes; when absent, the state itself. */
  readonly input?: I | undefined
  /** The first state, from the parsed input; when absent, the input is taken as the state. */
  readonly initialState?: ((input: Out<I>) => Out<St>) | undefined
  /** Signals it understands, each with the schema of its payload. */
  readonly signals?: G | undefined
  /** Events it may wait for, broadcast to all by `emit`, each with the schema of its payload. None is called like one of its signals. */
  readonly events?: Ev | undefined
  /** The result; when absent, `done(undefined)`, which reads back as null. */
  readonly output?: (Ou & Stored<Ou>) | undefined
  /** What `fail` takes besides a text. */
  readonly error?: Er | undefined
  readonly initial: NoInfer<N>
  readonly steps: { [K in N]: Handler<ContextOf<St, G, NoInfer<N>, Ou, Er, I, Ev>, Outcome<NoInfer<N>, Out<Ou>, Out<Er>>> }
  /** Decides about a failed attempt; it may go anywhere. `undefined` leaves it to `retry`. */
  readonly onError?:
    | Handler<
        ContextOf<St, G, NoInfer<N>, Ou, Er, I, Ev> & ErrorFacts<NoInfer<N>>,
        Outcome<NoInfer<N>, Out<Ou>, Out<Er>> | undefined
      >
    | undefined
  /** By older version: its state made into a state of this version, for runs that were begun there. */
  readonly upgrade?: Readonly<Record<number, (state: unknown) => Out<St>>> | undefined
}

// biome-ignore lint/complexity/noBannedTypes: no events at all
export interface Machine<Name extends string, I, R, N extends string, G extends SignalMap, Ev extends SignalMap = {}>
  extends Definition<I, R> {
  readonly kind: 'machine'
  readonly name: Name
  readonly steps: readonly N[]
  readonly signals: G
  readonly events: Ev
}

/** What a result without a schema is, once stored: `undefined` reads back as null. */
type Result<Ou extends Schema> = [Out<Ou>] extends [undefined] ? null : Out<Ou>

/** Defines a machine: named steps over a typed state. Everything is validated here, once. Throws `invalid_configuration`. */
export function machine<
  const Name extends string,
  St extends Schema,
  N extends string,
  Ou extends Schema = Schema<undefined, undefined>,
  // biome-ignore lint/complexity/noBannedTypes: no signals at all, so that naming one does not compile
  G extends SignalMap = {},
  Er extends Schema = Schema<never, never>,
  I extends Schema = St,
  // biome-ignore lint/complexity/noBannedTypes: no events at all, so that naming one does not compile
  Ev extends SignalMap = {},
>(options: MachineOptions<Name, St, N, Ou, G, Er, I, Ev>): Machine<Name, In<I>, Result<Ou>, N, G, Ev> {
  const common = toCommonFields(options, 'machine')
  const field = (member: string): string => `machine "${common.name}".${member}`
  const steps = toSteps(options.steps, field('steps'))
  const signals = toSignals(options.signals ?? {}, field('signals'))
  const events = toEvents(options.events ?? {}, signals, field('events'))
  const stepNames = Object.keys(steps) as N[]
  const state = checkState(options.state, field('state'))
  const input = checkSchema(options.input, field('input')) ?? state
  checkCronInputs(common.triggers, input, field('triggers'))
  const definition: Machine<Name, In<I>, Result<Ou>, N, G, Ev> = {
    kind: 'machine',
    name: options.name,
    version: common.version,
    steps: Object.freeze(stepNames),
    // `{}` is what G is when no signals are given
    signals: options.signals ?? ({} as G),
    events: options.events ?? ({} as Ev),
    with: (value, callOptions) =>
      toCall({ definition: common.name, version: common.version, input: value, options: callOptions }),
    get [definitionRuntime]() {
      return runtime
    },
  }
  const runtime: AnyDefinition = Object.freeze({
    ...common,
    kind: 'machine',
    initial: checkInitial(options.initial, steps, field('initial')),
    steps,
    input,
    state,
    signals,
    events,
    output: checkSchema(options.output, field('output')),
    error: checkSchema(options.error, field('error')),
    onError: checkFunction(options.onError, field('onError')),
    initialState: checkFunction(options.initialState, field('initialState')),
    upgrade: toUpgrade(options.upgrade ?? {}, common.version, field('upgrade')),
    outcomes: makeOutcomeFunctions({
      definition: common.name,
      steps: new Set<string>(stepNames),
      signals: new Set(Object.keys(signals)),
      events: new Set(Object.keys(events)),
    }),
    self: definition,
  } satisfies AnyDefinition)
  return Object.freeze(definition)
}

function checkState(state: Schema, field: string): Schema {
  const schema = checkSchema(state, field)
  if (schema !== undefined) return schema
  throw notAllowed('invalid_configuration', { field, got: state, allowed: 'a Standard Schema' })
}

function toSteps(steps: object, field: string): AnyDefinition['steps'] {
  const entries = Object.entries(steps ?? {})
  if (entries.length === 0 || entries.length > MAX_STEPS) {
    throw notAllowed('invalid_configuration', { field, got: `${entries.length} steps`, allowed: `1 to ${MAX_STEPS}` })
  }
  for (const [name, handler] of entries) {
    checkName(name, { field })
    if (typeof handler === 'function') continue
    throw notAllowed('invalid_configuration', { field: `${field}.${name}`, got: handler, allowed: 'a function' })
  }
  // the worker builds one context for all; the compiler has checked each handler against its typed face
  return bareRecord(entries as [string, RuntimeStep][])
}

function toSignals(signals: SignalMap, field: string): AnyDefinition['signals'] {
  for (const [name, schema] of Object.entries(signals)) {
    checkName(name, { field })
    if (isTopic(name)) throw notAllowed('invalid_configuration', { field, got: name, allowed: 'a name that no event or run has' })
    if (isSchema(schema)) continue
    throw notAllowed('invalid_configuration', { field: `${field}.${name}`, got: schema, allowed: 'a Standard Schema' })
  }
  return bareRecord(Object.entries(signals))
}

function toEvents(events: SignalMap, signals: AnyDefinition['signals'], field: string): AnyDefinition['events'] {
  const clash = Object.keys(events).find((name) => signals[name] !== undefined)
  if (clash === undefined) return toSignals(events, field)
  throw notAllowed('invalid_configuration', { field, got: clash, allowed: 'names that are not those of its signals' })
}

function checkInitial(initial: string, steps: AnyDefinition['steps'], field: string): string {
  if (steps[initial] !== undefined) return initial
  throw notAllowed('invalid_configuration', { field, got: initial, allowed: `one of ${Object.keys(steps).join(', ')}` })
}

function toUpgrade(upgrade: AnyDefinition['upgrade'], version: number, field: string): AnyDefinition['upgrade'] {
  for (const [from, convert] of Object.entries(upgrade)) {
    checkInteger(Number(from), { field, min: 1, max: Math.min(version - 1, MAX_VERSION) })
    checkFunction(convert, `${field}.${from}`)
  }
  return upgrade
}
