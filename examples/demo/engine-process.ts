import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

export interface EngineSetting {
  /** Folder of the embedded database. */
  readonly database: string
  /** File that effects are noted in. */
  readonly effects: string
  readonly webhookSecret: string
}

/** The engine in a process of its own. */
export interface EngineProcess {
  readonly url: string
  readonly pid: number
  /** As kill -9 and an out-of-memory killer end a process: it gets no chance to do anything. */
  kill(): Promise<void>
  /** Lets it finish what it has in hand. */
  stop(): Promise<void>
}

export async function startEngine({ database, effects, webhookSecret }: EngineSetting): Promise<EngineProcess> {
  const child = spawn(process.execPath, [fileURLToPath(new URL('./engine.ts', import.meta.url))], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, DEMO_DATABASE: database, DEMO_EFFECTS: effects, WEBHOOK_SECRET: webhookSecret },
  })
  const exited = once(child, 'exit')
  const url = await Promise.race([
    readUrl(child),
    exited.then(([code]) => Promise.reject(new Error(`the engine ended with ${code} before it was ready`))),
  ])
  const end = async (signal: 'SIGKILL' | 'SIGTERM') => {
    child.kill(signal)
    await exited
  }
  return { url, pid: child.pid ?? 0, kill: () => end('SIGKILL'), stop: () => end('SIGTERM') }
}

async function readUrl(child: ChildProcess): Promise<string> {
  if (!child.stdout) throw new Error('the engine has no output')
  const [line] = await once(createInterface({ input: child.stdout }), 'line')
  return JSON.parse(String(line)).url
}
