/** The definitions as Vercel functions on Neon. Environment variables: DATABASE_URL, PAWL_ROOT_KEY, CRON_SECRET, PAYMENTS_SECRET. */
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { vercel } from '../../src/hosts/vercel.ts'
import { pawl } from '../definitions.ts'

type Environment = Readonly<Record<string, string | undefined>>

export const { GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS } = vercel<Environment>(pawl, {
  database: ({ DATABASE_URL = '' }) => neonHttp(DATABASE_URL),
  rootKey: ({ PAWL_ROOT_KEY }) => PAWL_ROOT_KEY,
})
