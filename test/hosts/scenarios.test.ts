import { describeScenarios } from './node-scenarios.ts'

describeScenarios('the catalogue of scenarios, on Node and PostgreSQL', 'C242')
