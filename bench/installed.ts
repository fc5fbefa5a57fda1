import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The version of a package as it is installed here. */
export function installedVersion(name: string): string {
  return versionAbove(name, createRequire(import.meta.url).resolve(name))
}

/** The version of the library in whose folder this file lies. */
export function ownVersion(): string {
  return versionAbove('pawl', fileURLToPath(import.meta.url))
}

function versionAbove(name: string, path: string): string {
  for (let folder = dirname(path); folder !== dirname(folder); folder = dirname(folder)) {
    const manifest = readManifest(join(folder, 'package.json'))
    if (manifest?.name === name) return manifest.version
  }
  throw new Error(`No package ${name} above ${path}`)
}

function readManifest(path: string): { readonly name: string; readonly version: string } | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    return undefined
  }
}
