/** One measurement in a process of its own: what it is told comes as JSON in the first argument, what it found leaves as one line. */
import { loadAdapter } from './adapters/all.ts'
import { type ChildTask, RESULT_MARK } from './measure.ts'
import { createMeter } from './meter.ts'
import { findScenario } from './scenarios/all.ts'

const { adapter, setting, scenario, url, postmaster }: ChildTask = JSON.parse(process.argv[2] ?? '')
const subject = { adapter: await loadAdapter(adapter), setting, url, meter: createMeter(postmaster) }
const sample = await findScenario(scenario).run(subject)
console.log(RESULT_MARK + JSON.stringify(sample))
process.exit(0)
