/** What tests of applications need: a local server in Neon's wire format, and faults between an application and its database. */
export { type FaultProxy, startFaultProxy } from './fault-proxy.ts'
export type { Faults, Stall } from './faults.ts'
export { type NeonEndpoint, type NeonEndpointOptions, startNeonEndpoint } from './neon-endpoint.ts'
