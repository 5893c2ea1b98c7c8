/**
 * Drives the run `run` in the store of a folder. It starts a command in the background, a process that leaves its session,
 * and a command that does not end. Each writes its pid to a file.
 */
import path from 'node:path';
import { runLoop, type Tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { backgroundTools, bashTool, local, withBackground } from '@treadle/tools';

export const PID_FILES = ['background', 'session', 'command'] as const;

export function shellTools(folder: string): readonly Tool[] {
  return [withBackground(bashTool(local(folder))), ...backgroundTools()];
}

const bash = (command: string, more: object = {}): ScriptStep => ({
  calls: [{ name: 'bash', arguments: { command, ...more } }],
});

if (import.meta.main) {
  const [folder] = process.argv.slice(2) as [string];
  const model = scriptedModel([
    bash('echo $$ > background; sleep 1000', { background: true }),
    bash('(setsid sleep 1000 >/dev/null 2>&1 & echo $! > session)', { session: 'dev' }),
    bash('echo $$ > command; echo started; sleep 1000'),
  ]);
  await runLoop({
    model,
    tools: shellTools(folder),
    journal: sqliteStore(path.join(folder, 'runs.db')),
    runId: 'run',
    input: 'Go.',
    onItem(item) {
      if (item.type === 'tool-report' && item.progress === 'started\n') process.stdout.write('started\n');
    },
  });
}
