import { createClient, type HttpClient, type PawlTypes } from '../client/http-client.ts'
import type { CommandCall } from './command.ts'

export const API_OPTIONS = {
  api: { kind: 'text', does: 'address of the API. Default: PAWL_URL, else http://127.0.0.1:3000' },
  token: { kind: 'text', does: 'API key. Default: PAWL_API_KEY' },
  tenant: { kind: 'text', does: 'with a root key: for whom' },
} as const

export const DEFAULT_PORT = 3000

export function apiUrl(call: CommandCall): string {
  return call.text('api') ?? call.env.PAWL_URL ?? `http://127.0.0.1:${DEFAULT_PORT}`
}

/** A client of the API: a database may be open in one process only, and this is the way to all of them. */
export function apiClient(call: CommandCall): HttpClient<PawlTypes> {
  return createClient({ url: apiUrl(call), key: call.text('token') ?? call.env.PAWL_API_KEY, tenant: call.text('tenant') })
}
