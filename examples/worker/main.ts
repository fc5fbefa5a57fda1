/** The definitions as a Worker on Neon: `npx wrangler dev`, `npx wrangler deploy`. Bindings are in wrangler.toml, secrets are not. */
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { cloudflare } from '../../src/hosts/cloudflare.ts'
import { pawl } from '../definitions.ts'

interface Bindings {
  /** Secret. */
  readonly DATABASE_URL: string
  /** Secret: may do everything. */
  readonly PAWL_ROOT_KEY?: string
  /** Secret: may tick, and nothing else. */
  readonly PAWL_CRON_SECRET?: string
  /** For local development: an endpoint that speaks Neon's wire format, such as the one of the test support. */
  readonly NEON_ENDPOINT?: string
  readonly STAGE?: string
  /** This Worker itself, for work that one invocation leaves over. */
  readonly SELF?: Fetcher
}

const worker = cloudflare<Bindings>(pawl, {
  database: ({ DATABASE_URL, NEON_ENDPOINT }) => neonHttp(DATABASE_URL, NEON_ENDPOINT ? { endpoint: NEON_ENDPOINT } : {}),
  environment: ({ STAGE }) => STAGE,
  rootKey: ({ PAWL_ROOT_KEY }) => PAWL_ROOT_KEY,
  cronSecret: ({ PAWL_CRON_SECRET }) => PAWL_CRON_SECRET,
  self: ({ SELF }) => SELF,
})

export default worker satisfies ExportedHandler<Bindings>
