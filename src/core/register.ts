/**
 * Types the host's `env` and `services` once for all handlers:
 * `declare module 'pawl' { interface Register { env: Env; services: Services } }`
 */
// biome-ignore lint/suspicious/noEmptyInterface: it exists to be augmented
export interface Register {}

export type Env = Register extends { env: infer E } ? E : unknown
export type Services = Register extends { services: infer S } ? S : unknown
