/**
 * Packs the public packages, runs the lines that `npm run pack` prints in an empty folder, and runs programs there as a user
 * would, on the oldest Node that the packages support and on this one: `npm run packed`. It needs a build and the registry.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const OLDEST_NODE = '22.18.0';
const root = path.join(import.meta.dirname, '..');

/** A run on SQLite that stops after its payment, and the same call in another process, which does not pay again. */
const RESUME = `
import { runLoop, streamLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';

const [, , step] = process.argv;
const pay = tool({ name: 'pay', description: 'Pays', execute: () => (console.log('paid'), 'paid') });
const job = { tools: [pay], journal: sqliteStore('runs.db'), runId: 'bill-' + process.version, input: 'Pay', resume: 'auto' } as const;
if (step === 'crash') {
  const live = streamLoop({ ...job, model: scriptedModel([{ calls: [{ name: 'pay' }] }, () => new Promise(() => {})]) });
  for await (const item of live) if (item.type === 'turn-started' && item.turn === 2) process.kill(process.pid, 'SIGKILL');
} else {
  console.log((await runLoop({ ...job, model: scriptedModel(['It is paid.']) })).orThrow().text);
}
`;

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-packed-'));
try {
  const printed = run(process.execPath, [path.join(root, 'scripts/pack.ts')]);
  for (const line of printed.split('\n')) if (line.startsWith('npm ')) run(line, [], { shell: true });
  const platform = `${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`;
  const oldest = `node-${platform}@${OLDEST_NODE}`;
  run('npm', ['install', oldest]);
  for (const example of ['quickstart.ts', 'streaming.ts', 'csv-agent.ts']) {
    copyFileSync(path.join(root, 'examples', example), path.join(folder, example));
  }
  writeFileSync(path.join(folder, 'resume.ts'), RESUME);
  for (const node of [path.join(folder, `node_modules/node-${platform}/bin/node`), process.execPath]) check(node);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function check(node: string): void {
  const start = performance.now();
  const version = run(node, ['--version']);
  expectOutput(run(node, ['quickstart.ts']), '12 degrees and rain in Oslo');
  expectOutput(run(node, ['streaming.ts']), '> get_time {}', 'completed after 2 turns');
  expectOutput(run(node, ['csv-agent.ts']), 'north 3 4 5');
  expectOutput(run(node, ['resume.ts', 'crash'], { signal: 'SIGKILL' }), 'paid');
  expectOutput(run(node, ['resume.ts', 'resume']), 'It is paid.');
  const command = ['node_modules/treadle/dist/main.js', 'run', '--model', 'demo', '--store', 'memory:'];
  expectOutput(run(node, [...command, 'What is 6 * 7?']), '42');
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`${version.trim()}: quickstart, stream, agent, resume after SIGKILL and command, ${seconds} s`);
}

function run(command: string, args: readonly string[], { signal = null as string | null, shell = false } = {}): string {
  const quiet = { npm_config_audit: 'false', npm_config_fund: 'false', npm_config_prefer_offline: 'true' };
  const env = { ...process.env, ...quiet, NODE_OPTIONS: '' };
  const ended = spawnSync(command, args, { cwd: folder, encoding: 'utf8', env, shell });
  const { status, stdout, stderr } = ended;
  if (signal === null ? status === 0 : ended.signal === signal) return stdout;
  throw new Error(`${command} ${args.join(' ')} ended with ${status ?? ended.signal}:\n${stdout}${stderr}`);
}

function expectOutput(output: string, ...expected: readonly string[]): void {
  const missing = expected.find((text) => !output.includes(text));
  if (missing !== undefined) throw new Error(`The output does not contain "${missing}":\n${output}`);
}
