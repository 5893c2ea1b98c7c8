/**
 * Drives the run `run` in the store of a folder. It kills itself when a command has started, before the journal can have its
 * process.
 */
import { writeSync } from 'node:fs';
import path from 'node:path';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { bashTool, local } from '@treadle/tools';

const [folder] = process.argv.slice(2) as [string];
const { files, exec } = local(folder);

const start: typeof exec.start = async (request) => {
  const { process: started } = await exec.start(request);
  writeSync(1, `${started.pid}\n`);
  process.kill(process.pid, 'SIGKILL');
  return new Promise(() => {});
};

await runLoop({
  model: scriptedModel([{ calls: [{ name: 'bash', arguments: { command: 'sleep 1000' } }] }]),
  tools: [bashTool({ files, exec: { ...exec, start } })],
  journal: sqliteStore(path.join(folder, 'runs.db')),
  runId: 'run',
  input: 'Go.',
});
