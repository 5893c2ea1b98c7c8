/** Measures the tools of `@treadle/tools`. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { measureAgents } from './agents.ts';
import { measureMcp } from './mcp.ts';
import { measurePackages } from './packages.ts';
import { measureSandbox } from './sandbox.ts';
import { measureSearch } from './search.ts';
import { measureShell } from './shell.ts';
import { measureSkills } from './skills.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-bench-'));
try {
  // First, because a process with much memory takes longer to start another one.
  await measureSandbox(folder);
  await measureMcp(folder);
  await measureShell(folder);
  await measurePackages(folder);
  await measureSearch(folder);
  await measureSkills(folder);
  await measureAgents(folder);
} finally {
  rmSync(folder, { recursive: true });
}
