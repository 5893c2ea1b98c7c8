#!/usr/bin/env node
import { main } from './cli.ts';
import { exit, processIo } from './terminal/process-io.ts';

await exit(await main(process.argv.slice(2), processIo()));
