import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import settings from '../../tsconfig.json' with { type: 'json' }

const root = fileURLToPath(new URL('../../', import.meta.url))

/** What tsc says of a program that imports `pawl` as its users do. */
async function compile(program: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-register-'))
  try {
    const { types: _, ...compilerOptions } = settings.compilerOptions
    const paths = { pawl: [join(root, 'src/index.ts')] }
    const config = { compilerOptions: { ...compilerOptions, types: [], paths }, files: ['program.ts'] }
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
    await writeFile(join(folder, 'program.ts'), program)
    const tsc = promisify(execFile)(join(root, 'node_modules/.bin/tsc'), ['-p', folder])
    return (await tsc.catch((error: { stdout: string }) => error)).stdout
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const REGISTER = `
import { createPawl, job } from 'pawl'
declare module 'pawl' {
  interface Register { env: { STAGE: string }; services: { mailer: { send(to: string): Promise<number> } } }
}
export const mail = job({ name: 'mail', run: async ({ env, services }) => ({ stage: env.STAGE, sent: await services.mailer.send('x') }) })
export const pawl = createPawl({ definitions: [mail] })
`

test('what an application registers types the env and the services of its handlers and connections', async () => {
  expect(await compile(REGISTER)).toBe('')
  const wrong = `${REGISTER}
// @ts-expect-error not registered
export const bad = job({ name: 'bad', run: ({ services }) => services.printer })
declare const database: import('pawl').Database
pawl.connect({ database, env: { STAGE: 'x' }, services: { mailer: { send: async () => 1 } } })
// @ts-expect-error another service than the registered one
pawl.connect({ database, services: { mailer: 7 } })
`
  expect(await compile(wrong)).toBe('')
})
