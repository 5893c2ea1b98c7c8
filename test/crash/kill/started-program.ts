/**
 * Drives the run `run` in the store of a folder, which calls bash with these arguments. It kills itself when a program has
 * started, before the journal can have its process, and prints the pid of the program.
 */
import { writeSync } from 'node:fs';
import path from 'node:path';
import { runLoop, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { bashTool, local, type ExecOps } from '@treadle/tools';

/** `onStart`: called with the pid of each program, before anybody else knows it. */
export function commandTools(folder: string, onStart?: (pid: number) => void): readonly Tool[] {
  const { files, exec } = local(folder);
  const start: ExecOps['start'] = async (request) => {
    const execution = await exec.start(request);
    onStart?.(execution.process.pid);
    return execution;
  };
  return [bashTool({ files, exec: { ...exec, start } })];
}

if (import.meta.main) {
  const [folder, call] = process.argv.slice(2) as [string, string];
  await runLoop({
    model: scriptedModel([{ calls: [{ name: 'bash', arguments: JSON.parse(call) as object }] }]),
    tools: commandTools(folder, (pid) => {
      writeSync(1, `${pid}\n`);
      process.kill(process.pid, 'SIGKILL');
    }),
    journal: sqliteStore(path.join(folder, 'runs.db')),
    runId: 'run',
    input: 'Go.',
  });
}
