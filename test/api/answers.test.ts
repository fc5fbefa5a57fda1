import { expect, test } from 'vitest'
import { createClient } from '../../src/client/index.ts'

test.each(['', 'null', '1', '"ok"'])(
  'a success that says %o is not one of the API: the client takes it for none',
  async (text) => {
    const answer = async () => new Response(text, { status: 201, headers: { 'content-type': 'application/json' } })
    const client = createClient({ url: 'https://pawl.test', fetch: answer })
    await expect(client.cancel('x')).rejects.toMatchObject({ code: 'internal' })
  },
)
