#!/usr/bin/env node
import { enableCompileCache } from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

// The compiled code of the package is kept for the next start, where no other user can write.
if (!import.meta.url.endsWith('.ts')) enableCompileCache(join(homedir(), '.treadle', 'cache'));
const [{ main }, { exit, processIo }] = await Promise.all([import('./cli.ts'), import('./terminal/process-io.ts')]);

await exit(await main(process.argv.slice(2), processIo()));
