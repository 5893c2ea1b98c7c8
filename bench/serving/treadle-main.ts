/** The Treadle server in front of the scripted model, embedded as in a user program. See `process.ts`. */
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { devNull, tmpdir } from 'node:os';
import path from 'node:path';
import { tool, type Tool } from '@treadle/core';
import { openaiResponses } from '@treadle/models/openai-responses';
import { newLog, treadleServer } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { PARAMETERS, TOOL_DESCRIPTION, TOOL_NAME } from '../contenders/contender.ts';
import { stepDone } from './check.ts';
import { attach, jobOf } from './control.ts';

const { provider: baseURL, scripts, attacked } = jobOf();
const folder = mkdtempSync(path.join(tmpdir(), 'treadle-bench-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
/** Writes the complete log; nothing reads it. */
const sink = openSync(devNull, 'w');

const server = treadleServer({
  models: {
    default: scripts[0]!,
    models: new Map(scripts.map((model) => [model, openaiResponses({ model, baseURL, apiKey: 'key' })])),
  },
  store: sqliteStore(path.join(folder, 'server.db')),
  tools: [
    tool({
      name: TOOL_NAME,
      description: TOOL_DESCRIPTION,
      input: PARAMETERS,
      execute: (input) => stepDone(input.index as number),
    }),
    ...(attacked ? await searchTools() : []),
  ],
  // A title is a second request to the model, after the answer.
  chatTitles: false,
  port: 0,
  log: newLog({ to: { write: (line) => void writeSync(sink, line) } }),
});
const { url } = await server.listen();
attach(`${url}/v1`);

async function searchTools(): Promise<readonly Tool[]> {
  const { globTool, grepTool, local } = await import('@treadle/tools');
  const workspace = path.join(folder, 'workspace');
  mkdirSync(workspace);
  writeFileSync(path.join(workspace, 'a.txt'), `${'a'.repeat(60)}!\n`);
  const ops = local(workspace);
  return [globTool(ops), grepTool(ops)];
}
