#!/usr/bin/env node
import { runCommandLine } from './command-line.ts'
import { terminal } from './terminal.ts'

process.exitCode = await runCommandLine(process.argv.slice(2), { terminal, env: process.env })
