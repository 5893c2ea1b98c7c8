import { appendFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Policy } from '@treadle/core';
import { executionLine, type PolicyRules } from '@treadle/core/policy';
import { CommandError } from '../command-line/command.ts';
import { writeProblem } from '../command-line/named-file.ts';
import { userName } from './ask-approval.ts';
import type { DriveRunOptions } from './drive-run.ts';

/**
 * Appends one JSON line per call to the file: the tool, its parameters without secrets, and how it ended. Undefined without a
 * file. Throws if the file cannot be written; later failures are reported on standard error.
 */
export function openCallLog(
  file: string | undefined,
  { cwd, writeLine }: { readonly cwd: string; readonly writeLine: (line: string) => void },
  policy: Policy | undefined,
): DriveRunOptions['logCalls'] {
  if (file === undefined) return undefined;
  const path = resolve(cwd, file);
  const problemWith = (text: string): string | undefined => {
    try {
      appendFileSync(path, text, { mode: 0o600 });
      return undefined;
    } catch (error) {
      return `The log ${file} cannot be written: ${writeProblem(error)}.`;
    }
  };
  const problem = problemWith('');
  if (problem !== undefined) throw new CommandError(problem);
  const { autonomy = 1 } = (policy?.rules ?? {}) as PolicyRules;
  return (item, runId) => {
    const line = { ...executionLine(item, { runId, at: Date.now(), autonomy }), subject: userName() };
    const failed = problemWith(`${JSON.stringify(line)}\n`);
    if (failed !== undefined) writeLine(failed);
  };
}
