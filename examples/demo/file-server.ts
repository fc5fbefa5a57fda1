import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface DemoFile {
  readonly url: string
  readonly bytes: number
  readonly sha256: string
}

export interface FileServer {
  readonly files: readonly DemoFile[]
  /** Requests answered with 503. */
  readonly failures: () => number
  close(): void
}

const SIZES = [1_000, 20_000, 64_000, 250_000, 1_000_000]
/** This one fails for its first two requests. */
const UNRELIABLE = '/file-2'
const FAILURES = 2

/** Serves a few files of known content on a free port of this machine; one of them fails twice. */
export async function startFileServer(): Promise<FileServer> {
  const contents = new Map(SIZES.map((size, index) => [`/file-${index}`, contentOf(size, index)]))
  let failures = 0
  const server = createServer((request, response) => {
    const content = contents.get(request.url ?? '')
    if (request.url === UNRELIABLE && failures < FAILURES) {
      failures += 1
      response.writeHead(503).end()
    } else if (content) response.end(content)
    else response.writeHead(404).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const files = [...contents].map(([path, content]) => ({
    url: `http://127.0.0.1:${port}${path}`,
    bytes: content.length,
    sha256: createHash('sha256').update(content).digest('hex'),
  }))
  return {
    files,
    failures: () => failures,
    close: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** The same bytes in every demo, no two files alike. */
function contentOf(size: number, seed: number): Buffer {
  const content = Buffer.alloc(size)
  for (let index = 0, value = seed + 1; index < size; index += 1) {
    value = (value * 1_103_515_245 + 12_345) % 2_147_483_648
    content[index] = value >> 16
  }
  return content
}
