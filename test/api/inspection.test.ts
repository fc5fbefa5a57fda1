import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { job } from '../../src/core/job.ts'
import { cron } from '../../src/core/trigger.ts'
import { type ApiSubject, apiSubject, sendTo } from './subject.ts'

const nightly = job({ name: 'nightly', triggers: [cron('0 3 * * *', { name: 'every-night' })], run: () => 'swept' })
const flaky = job({
  name: 'flaky',
  retry: { maxAttempts: 3, backoff: { kind: 'fixed', base: '1m' } },
  run: ({ attempt }) => {
    if (attempt < 3) throw new Error(`attempt ${attempt}`)
    return 'third'
  },
})

describe('looking at runs', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(18, { definitions: [nightly, flaky], frozen: true })
  })
  afterAll(() => subject.close())

  test('C183 a list by queue and status goes on where it was, whatever is spawned meanwhile', async () => {
    const spawn = async (queue: string, delay = '1h') =>
      String((await subject.send('POST', '/v1/runs', { body: { definition: 'flaky', queue, delay } })).body.id)
    const expected: string[] = []
    for (let n = 0; n < 5; n += 1) {
      expected.unshift(await spawn('listed'))
      await spawn('beside')
    }
    const ended = await spawn('listed')
    await subject.send('POST', `/v1/runs/${ended}/cancel`)
    const found: string[] = []
    let cursor: unknown = ''
    while (cursor !== null) {
      const { body } = await subject.send(
        'GET',
        `/v1/runs?queue=listed&status=pending&limit=2${cursor ? `&cursor=${cursor}` : ''}`,
      )
      found.push(...(body.items as { id: string }[]).map(({ id }) => id))
      cursor = body.nextCursor
      // comes before everything, so no later page has it and none is shifted by it
      await spawn('listed')
    }
    expect(found).toEqual(expected)
  })

  test('C183 pages of runs of one instant have each of them once, also while those that were seen leave the filter', async () => {
    const runs = Array.from({ length: 9 }, () => ({ definition: 'flaky', queue: 'at-once', delay: '1h' }))
    const spawned = (await subject.send('POST', '/v1/runs/batch', { body: { runs } })).body.items as { id: string }[]
    const found: string[] = []
    for (let cursor = ''; ; ) {
      const page = await subject.send('GET', `/v1/runs?queue=at-once&status=pending&limit=2${cursor}`)
      const ids = (page.body.items as { id: string }[]).map(({ id }) => id)
      found.push(...ids)
      for (const id of ids) await subject.send('POST', `/v1/runs/${id}/cancel`)
      if (page.body.nextCursor === null) break
      cursor = `&cursor=${page.body.nextCursor}`
    }
    expect(found).toEqual(spawned.map(({ id }) => id).reverse())
    expect((await subject.send('GET', '/v1/runs?queue=at-once&status=pending')).body.items).toEqual([])
    expect((await subject.send('GET', '/v1/runs?queue=at-once&status=cancelled')).body.items).toHaveLength(9)
  })

  test('C186 the history of a run has each attempt with its error', async () => {
    const id = String((await subject.send('POST', '/v1/runs', { body: { definition: 'flaky' } })).body.id)
    for (let attempt = 0; attempt < 3; attempt += 1) {
      await subject.send('POST', '/v1/tick')
      subject.engine.advance(60_000)
    }
    expect((await subject.send('GET', `/v1/runs/${id}/history`)).body.items).toMatchObject([
      { attempt: 1, step: 'run', outcome: 'retry', error: { message: 'attempt 1' } },
      { attempt: 2, step: 'run', outcome: 'retry', error: { message: 'attempt 2' } },
      { attempt: 3, step: 'run', outcome: 'done' },
    ])
    expect((await subject.send('GET', `/v1/runs/${id}`)).body).toMatchObject({ status: 'completed', attempt: 3, result: 'third' })
  })

  test('C204 a run that a schedule spawned shows the schedule and the slot', async () => {
    await subject.send('POST', '/v1/tick')
    subject.engine.advance(86_400_000)
    await subject.send('POST', '/v1/tick')
    const { body } = await sendTo(subject.app, 'GET', '/v1/runs?definition=nightly')
    const [run] = body.items as { origin?: { schedule: string; slot: string } }[]
    expect(run?.origin).toMatchObject({ schedule: 'every-night', slot: expect.stringMatching(/T03:00:00/) })
  })
})
