/**
 * Runs programs one after the other in one process: `node run-snippets.ts FILE…`. They share the modules that they import,
 * whose loading takes most of the time of such a program. As in a process of its own, a program has ended when nothing is
 * left to do. Prints a line for each: a `SnippetRun` as JSON.
 */
import path from 'node:path';
import { pathToFileURL } from 'node:url';

export interface SnippetRun {
  readonly file: string;
  /** As of a process: 0, or else it failed. */
  readonly status: number;
  readonly stdout: string;
  /** With the error that ended it. */
  readonly stderr: string;
}

/** The exit code of Node for a program that waits at its top level for something that never happens. */
const NEVER_SETTLED = 13;

const files = process.argv.slice(2);
const environment = { ...process.env };
const folder = process.cwd();
const print = process.stdout.write.bind(process.stdout);
const written = { stdout: '', stderr: '' };
let running: string | undefined;
let status = 0;

for (const name of ['stdout', 'stderr'] as const) {
  process[name].write = ((text: string | Uint8Array) => {
    written[name] += Buffer.from(text as string).toString();
    return true;
  }) as typeof process.stdout.write;
}

function fail(error: unknown): void {
  status = 1;
  written.stderr += `${(error as Error)?.stack ?? String(error)}\n`;
}

function report(code: number): void {
  const run = { file: running!, status: code, ...written } satisfies SnippetRun;
  print(`${JSON.stringify(run)}\n`);
  running = undefined;
}

/** Called when nothing is left to do. */
function runNext(): void {
  if (running !== undefined) report(Number(process.exitCode ?? 0) || status);
  const file = files.shift();
  if (file === undefined) return;
  [running, status, written.stdout, written.stderr] = [file, NEVER_SETTLED, '', ''];
  process.exitCode = undefined;
  process.chdir(folder);
  process.env = { ...environment };
  // In a task of its own: otherwise Node would not notice that there was something to do, and would exit.
  setImmediate(() => {
    import(pathToFileURL(path.resolve(file)).href).then(() => (status = status === NEVER_SETTLED ? 0 : status), fail);
  });
}

process.on('uncaughtException', fail);
process.on('beforeExit', runNext);
// A program that calls `process.exit` ends this process, and the caller starts another for the rest.
process.on('exit', (code) => {
  if (running !== undefined) report(code);
});
runNext();
