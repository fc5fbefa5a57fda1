import type { ErrorCode, ErrorKind } from '../src/core/errors.ts'

export interface Advice {
  readonly when: string
  readonly remedy: string
}

/** What a caller can do, by kind. */
export const KINDS: Readonly<Record<ErrorKind, string>> = {
  invalid: 'What was asked, or a setting, is wrong: the same request fails again until it is mended.',
  not_found: 'There is nothing there, or nothing that the caller may see.',
  mismatch: 'What is there differs from what was expected: look at it, then decide.',
  contended: 'Somebody else is in the way: ask again after `Retry-After`.',
  unreachable: 'The database was not reached and nothing was written: ask again after `Retry-After`.',
  unknown: 'It may or may not have happened: ask again under the same id or key, or look.',
}

const FIX = 'Mend what `errors`, `field`, `got` and `allowed` name.'
const DEFINE = 'Mend the step: the run has failed with this error and can be retried once that is deployed.'
const AGAIN = 'Ask again after `Retry-After`. Nothing was written.'

/** When each code comes up, and what to do about it: of the page that `error-page.ts` writes. */
export const ADVICE: Readonly<Record<ErrorCode, Advice>> = {
  malformed: {
    when: 'The body is not JSON, a header or a cursor is not what was answered.',
    remedy: 'Send valid JSON, and cursors as they were given.',
  },
  invalid_request: { when: 'A field is unknown, missing, or of a value that is not allowed.', remedy: FIX },
  invalid_input: { when: 'The input of a spawn does not match the definition, or JSON cannot hold it.', remedy: FIX },
  invalid_state: { when: 'A step gave a state that does not match, or that JSON cannot hold.', remedy: DEFINE },
  invalid_result: { when: 'A step, or a decision, gave a result that does not match, or that JSON cannot hold.', remedy: DEFINE },
  invalid_error: {
    when: 'A step, or a decision, gave an error that does not match its schema, or that JSON cannot hold.',
    remedy: DEFINE,
  },
  invalid_signal: { when: 'The target declares no such signal, or the payload does not match.', remedy: FIX },
  invalid_event: { when: 'The name or the payload of an event is not allowed.', remedy: FIX },
  invalid_outcome: {
    when: 'A step returned something that is no outcome, or one with a value that is not allowed.',
    remedy: DEFINE,
  },
  unknown_definition: {
    when: 'This build has no definition of that name and version.',
    remedy: 'Deploy it, or ask for one there is.',
  },
  unknown_queue: { when: 'A setting names a queue that nobody declares.', remedy: 'Declare it, or mend the name.' },
  unknown_limit: {
    when: 'A limit is used that nobody declares, or a run would cost more of it than it ever holds.',
    remedy: 'Declare it, or mend the name or the weight.',
  },
  payload_too_large: {
    when: 'A payload is above 1 MiB, or a body above 4 MiB.',
    remedy: 'Store it elsewhere and send where it is.',
  },
  too_many_items: { when: 'A batch has more than 10,000 items.', remedy: 'Send several batches.' },
  method_not_allowed: { when: 'The path is known, the method is not.', remedy: 'Use one of those in `Allow`.' },
  unsupported_media_type: {
    when: 'The body is not sent as `application/json`.',
    remedy: 'Say `content-type: application/json`.',
  },
  unauthorized: { when: 'There is no key, or it is unknown, revoked or over.', remedy: 'Send `Authorization: Bearer <key>`.' },
  bad_signature: {
    when: 'The signature of a webhook does not fit its body and its secret, or is too old.',
    remedy: 'Compare the secrets, and the clocks.',
  },
  forbidden: { when: 'The key lacks the scope.', remedy: 'Use a key with that scope.' },
  not_found: {
    when: 'No such run, queue, key or address; also for what belongs to another tenant.',
    remedy: 'Look at the id and the tenant.',
  },
  no_target: { when: 'No live run has that id or key.', remedy: 'Look whether it has ended; spawn it first.' },
  gone: { when: 'What was asked for has been deleted by its retention.', remedy: 'Keep it longer, by `retention`.' },
  conflict: {
    when: 'What is there does not allow this: several runs have the key, or another decision was taken.',
    remedy: 'Read the detail, and look at the run.',
  },
  key_taken: {
    when: 'A retry would take a key that another live run holds.',
    remedy: 'Wait for the end of that run, or cancel it.',
  },
  not_retryable: {
    when: 'The run has not ended badly, or was cancelled while it waited.',
    remedy: 'Spawn it anew, or retry it as a new run.',
  },
  idempotency_mismatch: { when: 'The key was used for another request before.', remedy: 'Use a new key for a new request.' },
  idempotency_in_progress: {
    when: 'The first request under this key is not over.',
    remedy: 'Ask again a moment later, under the same key.',
  },
  cancelled: { when: 'A handler goes on although its run was asked to end.', remedy: 'Heed `abortSignal`.' },
  lost_ownership: {
    when: 'A handler writes for a run that was taken from it: its lease had lapsed.',
    remedy: 'Nothing: the run goes on elsewhere. Call `heartbeat` in long steps.',
  },
  database_unreachable: { when: 'No connection, or it was cut before anything was sent.', remedy: AGAIN },
  database_busy: { when: 'Too many connections, a timeout, a deadlock that came again and again.', remedy: AGAIN },
  unknown_outcome: {
    when: 'The reply to a write was lost.',
    remedy: 'Send the same again under its id, key or idempotency key: it happens once.',
  },
  schema_outdated: { when: 'The tables are missing, or older than this build needs.', remedy: 'Run `pawl migrate`.' },
  schema_newer: { when: 'The tables were made for a newer build.', remedy: 'Deploy that build.' },
  schema_foreign: {
    when: 'A schema of that name exists and was not made by pawl.',
    remedy: 'Choose another name for the schema.',
  },
  environment_mismatch: {
    when: 'The database belongs to another environment.',
    remedy: 'Compare `environment` and the URL of the database.',
  },
  wrong_database: {
    when: 'A transaction that was handed in is one of another database.',
    remedy: 'Hand in one of the database that pawl uses.',
  },
  not_configured: {
    when: 'No key is configured, or this host lacks what was asked for.',
    remedy: 'Set the root key, or make keys with `pawl keys create`.',
  },
  invalid_configuration: { when: 'A definition or an option is not allowed. Thrown when the application starts.', remedy: FIX },
  not_connected: {
    when: 'A call was made outside an invocation, without a database.',
    remedy: 'Give `createPawl` a `database`, or use what the host hands in.',
  },
  too_many_requests: { when: 'The caller asks too often.', remedy: 'Ask again after `Retry-After`.' },
  internal: {
    when: 'A fault of ours, or of the host. The answer says nothing of the inside.',
    remedy: 'Look into the log of the host.',
  },
}
