import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { HostedPawl } from '../hosts/host-options.ts'
import { type CommandCall, UsageError } from './command.ts'

export const APP_OPTION = {
  app: {
    kind: 'text',
    does: `the module that exports \`pawl\`. Default: the first there is of pawl.ts, src/pawl.ts, pawl.js, src/pawl.js`,
  },
} as const

const USUAL_PLACES = ['pawl.ts', 'src/pawl.ts', 'pawl.js', 'src/pawl.js', 'pawl.mjs', 'src/pawl.mjs']

export interface LoadedApp {
  readonly file: string
  readonly pawl: HostedPawl
}

/** Imports the user's module and takes what `createPawl` made: its export `pawl`, or the default one. */
export async function loadApp(call: CommandCall): Promise<LoadedApp> {
  const file = call.text('app') ?? USUAL_PLACES.find((place) => existsSync(place))
  if (file === undefined) throw new UsageError(`no application: give --app, or have one of ${USUAL_PLACES.join(', ')}`)
  if (!existsSync(file)) throw new UsageError(`--app: there is no file ${file}`)
  const module = await importModule(file)
  const pawl = module.pawl ?? module.default
  if (!isPawl(pawl)) throw new UsageError(`${file} exports no \`pawl\` made by createPawl()`)
  return { file, pawl }
}

async function importModule(file: string): Promise<Readonly<Record<string, unknown>>> {
  try {
    return await import(pathToFileURL(resolve(file)).href)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ERR_UNKNOWN_FILE_EXTENSION')) throw error
    throw new UsageError(`this Node (${process.version}) does not run TypeScript: use 22.18 or newer, or give the built file`)
  }
}

function isPawl(value: unknown): value is HostedPawl {
  return typeof value === 'object' && value !== null && 'connect' in value && 'registry' in value && 'logger' in value
}
