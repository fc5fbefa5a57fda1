import type { ErrorFacts, JobContext } from './context.ts'
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
import type { ReadBack } from './json.ts'
import { makeOutcomeFunctions, type Outcome } from './outcome.ts'
import type { In, Out, Schema, Stored } from './schema.ts'

/** The one step of a job. */
export const JOB_STEP = 'run'

/** What a handler returned, without the outcomes that end a run otherwise. */
type Returned<T> = T extends Outcome<string, infer X, unknown> ? X : T

/** The declared result, else what JSON gives back of what the handler returns. */
type JobResult<Ou extends Schema, T> = unknown extends Out<Ou> ? ReadBack<Returned<T>> : Out<Ou>

export interface JobOptions<Name extends string, I extends Schema, T, Ou extends Schema, Er extends Schema>
  extends CommonOptions<Out<I>, In<I>> {
  readonly name: Name
  /** What spawn takes. Stored as sent; parsed at spawn and again for the handler. When absent: nothing. */
  readonly input?: I | undefined
  /** The result. When absent, the type is what JSON gives back of what the handler returns. */
  readonly output?: (Ou & Stored<Ou>) | undefined
  /** What `fail` takes besides a text. */
  readonly error?: Er | undefined
  /**
   * Returns the result, or an outcome made by its context. What it throws is retried as `retry` says. Where `output` has
   * literal types, `done({ kind: 'a' })` (or `as const`) keeps them; a bare literal is read as `string`.
   */
  readonly run: (context: JobContext<Out<I>, Out<Ou>, Out<Er>>) => T | Promise<T>
  /** Decides about a failed attempt. `undefined` leaves it to `retry`. */
  readonly onError?:
    | ((
        context: JobContext<Out<I>, Out<Ou>, Out<Er>> & ErrorFacts<typeof JOB_STEP>,
      ) => JobDecision<Ou, Er> | Promise<JobDecision<Ou, Er>>)
    | undefined
}

type JobDecision<Ou extends Schema, Er extends Schema> = Outcome<never, Out<Ou>, Out<Er>> | undefined

export interface Job<Name extends string, I, R> extends Definition<I, R> {
  readonly kind: 'job'
  readonly name: Name
}

/** Defines a job: one step. Everything is validated here, once. Throws `invalid_configuration` naming field, got and allowed. */
export function job<
  const Name extends string,
  T extends Out<Ou> | Outcome<never, Out<Ou>, Out<Er>>,
  I extends Schema = Schema<null | undefined, null>,
  Ou extends Schema = Schema,
  Er extends Schema = Schema<never, never>,
>(options: JobOptions<Name, I, T, Ou, Er>): Job<Name, In<I>, JobResult<Ou, T>> {
  const common = toCommonFields(options, 'job')
  const field = (member: string): string => `job "${common.name}".${member}`
  const run = checkFunction(options.run, field('run'))
  if (run === undefined) throw notAllowed('invalid_configuration', { field: field('run'), got: run, allowed: 'a function' })
  const input = checkSchema(options.input, field('input'))
  checkCronInputs(common.triggers, input, field('triggers'))
  const definition: Job<Name, In<I>, JobResult<Ou, T>> = {
    kind: 'job',
    name: options.name,
    version: common.version,
    with: (value, callOptions) =>
      toCall({ definition: common.name, version: common.version, input: value, options: callOptions }),
    get [definitionRuntime]() {
      return runtime
    },
  }
  const runtime: AnyDefinition = Object.freeze({
    ...common,
    kind: 'job',
    initial: JOB_STEP,
    // the worker builds one context for all; the compiler has checked the handler against its typed face
    steps: bareRecord<RuntimeStep>([[JOB_STEP, run]]),
    input,
    state: undefined,
    signals: bareRecord<Schema>([]),
    events: bareRecord<Schema>([]),
    output: checkSchema(options.output, field('output')),
    error: checkSchema(options.error, field('error')),
    onError: checkFunction(options.onError, field('onError')),
    initialState: undefined,
    upgrade: {},
    outcomes: makeOutcomeFunctions({ definition: common.name, steps: new Set(), signals: new Set(), events: new Set() }),
    self: definition,
  } satisfies AnyDefinition)
  return Object.freeze(definition)
}
