/**
 * The frontend messages of Postgres' extended protocol, gathered into one block of bytes, so that a whole batch leaves in
 * one write. Web standards only: the same bytes go down a TCP socket, a WebSocket and into PGlite.
 */

const encoder = new TextEncoder()

/** Below this a loop over ASCII beats the call into the runtime's encoder. */
const SHORT_TEXT = 48

const INITIAL_BYTES = 16 * 1024

/** One huge payload must not hold its memory for the life of the process. */
const KEPT_BYTES = 1024 * 1024

export class WireWriter {
  private bytes = new Uint8Array(INITIAL_BYTES)
  private view = new DataView(this.bytes.buffer)
  private length = 0

  parse(name: string, text: string): void {
    const start = this.open(0x50)
    this.cstring(name)
    this.cstring(text)
    this.int16(0)
    this.close(start)
  }

  /** Binds text parameters to the unnamed portal; all results are asked for as text. */
  bind(name: string, params: readonly (string | null)[]): void {
    const start = this.open(0x42)
    this.byte(0)
    this.cstring(name)
    this.int16(0)
    this.int16(params.length)
    for (const param of params) this.value(param)
    this.int16(0)
    this.close(start)
  }

  describePortal(): void {
    const start = this.open(0x44)
    this.byte(0x50)
    this.byte(0)
    this.close(start)
  }

  execute(): void {
    const start = this.open(0x45)
    this.byte(0)
    this.int32(0)
    this.close(start)
  }

  /** Forgets a prepared statement; one that does not exist is no error. */
  closeStatement(name: string): void {
    const start = this.open(0x43)
    this.byte(0x53)
    this.cstring(name)
    this.close(start)
  }

  sync(): void {
    this.close(this.open(0x53))
  }

  /** What was written since the last call, as bytes of its own. */
  take(): Uint8Array<ArrayBuffer> {
    const taken = this.bytes.slice(0, this.length)
    this.length = 0
    if (this.bytes.length > KEPT_BYTES) this.adopt(new Uint8Array(INITIAL_BYTES))
    return taken
  }

  private open(code: number): number {
    this.byte(code)
    const start = this.length
    this.int32(0)
    return start
  }

  private close(start: number): void {
    this.view.setInt32(start, this.length - start)
  }

  private byte(value: number): void {
    this.reserve(1)
    this.bytes[this.length++] = value
  }

  private int16(value: number): void {
    this.reserve(2)
    this.view.setUint16(this.length, value)
    this.length += 2
  }

  private int32(value: number): void {
    this.reserve(4)
    this.view.setInt32(this.length, value)
    this.length += 4
  }

  private cstring(text: string): void {
    this.text(text)
    this.byte(0)
  }

  private value(text: string | null): void {
    if (text === null) {
      this.int32(-1)
      return
    }
    const start = this.length
    this.int32(0)
    this.text(text)
    this.view.setInt32(start, this.length - start - 4)
  }

  private text(text: string): void {
    this.reserve(text.length * 3)
    if (text.length <= SHORT_TEXT && this.ascii(text)) return
    this.length += encoder.encodeInto(text, this.bytes.subarray(this.length)).written
  }

  /** Writes the text if all of it is ASCII; the caller has reserved the room. */
  private ascii(text: string): boolean {
    const { bytes, length } = this
    for (let index = 0; index < text.length; index++) {
      const code = text.charCodeAt(index)
      if (code > 0x7f) return false
      bytes[length + index] = code
    }
    this.length += text.length
    return true
  }

  private reserve(count: number): void {
    const needed = this.length + count
    if (needed <= this.bytes.length) return
    const grown = new Uint8Array(Math.max(needed, this.bytes.length * 2))
    grown.set(this.bytes.subarray(0, this.length))
    this.adopt(grown)
  }

  private adopt(bytes: Uint8Array<ArrayBuffer>): void {
    this.bytes = bytes
    this.view = new DataView(bytes.buffer)
  }
}
