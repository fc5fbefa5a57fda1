/** What Vercel serves: every path is rewritten to here, and this is examples/vercel. */
export { DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT } from '../examples/vercel/handlers.js'
