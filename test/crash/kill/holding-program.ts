/** Drives the run `run` in the store of a folder. Its tool starts a process, prints its pid, and never returns. */
import { spawn, type ChildProcess } from 'node:child_process';
import path from 'node:path';
import { runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { heldProcess, sqliteStore } from '@treadle/store';

const [folder] = process.argv.slice(2) as [string];

export const work = tool({
  name: 'work',
  description: 'Works in a process of its own',
  async execute(_, { hold }) {
    const start = (): ChildProcess => spawn('sleep', ['1000'], { stdio: 'ignore' });
    const { resource } = await hold('sleep', start, (child) => child.kill(), {
      process: ({ pid }) => heldProcess(pid),
    });
    process.stdout.write(`${resource.pid}\n`);
    await new Promise(() => {});
  },
});

if (import.meta.main) {
  const journal = sqliteStore(path.join(folder, 'runs.db'));
  const model = scriptedModel([{ calls: [{ name: 'work' }] }]);
  await runLoop({ model, tools: [work], journal, runId: 'run', input: 'Go.' });
}
