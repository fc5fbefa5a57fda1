import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { DatabaseError } from '../../src/core/database.ts'
import { pglite } from '../../src/db/drivers/pglite.ts'
import { type FolderLock, lockFolder } from '../../src/db/drivers/pglite-lock.ts'

const LOCK_MODULE = new URL('../../src/db/drivers/pglite-lock.ts', import.meta.url).href

/** Takes the lock when told, says `taken` or `refused`, and goes on living until it is killed. */
const CONTENDER = `
import { lockFolder } from ${JSON.stringify(LOCK_MODULE)}
process.stdin.once('data', () => {
  try { lockFolder(process.argv[1]); console.log('taken') } catch (error) { console.log(error.fate === 'not_sent' ? 'refused' : error.stack) }
})
console.log('ready')
setInterval(() => {}, 60000)
`

describe('the lock of a PGlite folder', () => {
  let parent: string
  let folder: string
  const children: ChildProcess[] = []
  beforeEach(async () => {
    parent = await mkdtemp(join(tmpdir(), 'pawl-lock-'))
    folder = join(parent, 'deep', 'data')
  })
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await rm(parent, { recursive: true, force: true })
  })

  const contender = async (): Promise<ChildProcess> => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', CONTENDER, folder], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    children.push(child)
    expect(await line(child)).toBe('ready')
    return child
  }
  const line = async (child: ChildProcess): Promise<string> => {
    const [chunk] = await once(child.stdout!, 'data')
    return String(chunk).trim()
  }
  const contend = (child: ChildProcess): Promise<string> => {
    const answer = line(child)
    child.stdin!.write('go\n')
    return answer
  }
  const refusal = (): DatabaseError => {
    try {
      lockFolder(folder).release()
    } catch (error) {
      if (error instanceof DatabaseError) return error
    }
    throw new Error('the lock was given')
  }

  test('refuses a second process with the folder and the number of the first', async () => {
    const first = await contender()
    expect(await contend(first)).toBe('taken')
    const error = refusal()
    expect(error.fate).toBe('not_sent')
    expect(error.message).toContain(folder)
    expect(error.message).toContain(String(first.pid))
  })

  test('refuses the process that holds it already', () => {
    const lock = lockFolder(folder)
    expect(refusal().message).toContain(String(process.pid))
    lock.release()
  })

  test('is free after its release, which may be called twice', () => {
    const lock = lockFolder(folder)
    lock.release()
    lock.release()
    const next = lockFolder(folder)
    expect(refusal().fate).toBe('not_sent')
    next.release()
  })

  test('a late second release does not take it from the next holder', () => {
    const lock = lockFolder(folder)
    lock.release()
    const next = lockFolder(folder)
    lock.release()
    expect(refusal().fate).toBe('not_sent')
    next.release()
  })

  test('is taken over from a process that was killed', async () => {
    const first = await contender()
    expect(await contend(first)).toBe('taken')
    first.kill('SIGKILL')
    await once(first, 'exit')
    lockFolder(folder).release()
  })

  test('is taken over from a process whose number another one has now', async () => {
    lockFolder(folder).release()
    const impostor = JSON.stringify({ pid: process.pid, startedAt: '1', released: false })
    await writeFile(`${folder}.lock.7`, impostor)
    lockFolder(folder).release()
    await writeFile(`${folder}.lock.9`, 'half a fi')
    lockFolder(folder).release()
  })

  test('is taken over by exactly one of many at once', async () => {
    for (let round = 0; round < 3; round++) {
      const dead = await contender()
      expect(await contend(dead)).toBe('taken')
      dead.kill('SIGKILL')
      await once(dead, 'exit')
      const rivals = await Promise.all(Array.from({ length: 6 }, contender))
      const answers = await Promise.all(rivals.map(contend))
      expect(answers.toSorted()).toEqual([...Array<string>(5).fill('refused'), 'taken'])
      const ended = rivals.map((rival) => once(rival, 'exit'))
      for (const rival of rivals) rival.kill('SIGKILL')
      await Promise.all(ended)
    }
  })

  test('is not taken by a process that slept while others took it, released it and took it again', () => {
    lockFolder(folder).release()
    let holder: FolderLock | undefined
    const others = () => {
      if (holder) return
      lockFolder(folder).release()
      holder = lockFolder(folder)
    }
    expect(() => lockFolder(folder, others)).toThrow('in use by process')
    expect(holder).toBeDefined()
    holder?.release()
  })

  test('leaves one file beside the folder', async () => {
    for (let turn = 0; turn < 3; turn++) lockFolder(folder).release()
    expect(await readdir(join(parent, 'deep'))).toEqual(['data.lock.3'])
  })

  test('is held by an open database, and free when it is closed', async () => {
    const first = pglite(folder)
    await first.batch([{ name: 'create', text: 'CREATE TABLE kept AS SELECT 1 AS id', params: [] }])
    const second = pglite(folder)
    const select = { name: 'select', text: 'SELECT id FROM kept', params: [] }
    await expect(second.query(select)).rejects.toMatchObject({ name: 'DatabaseError', fate: 'not_sent' })
    await first.close()
    expect(await second.query(select)).toEqual([{ id: 1 }])
    await second.close()
  })
})
