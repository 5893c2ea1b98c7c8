import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { Entry } from '../contenders/list.ts';
import type { Verdict } from './job.ts';
import { node } from './pinned.ts';

const BENCH = path.resolve(import.meta.dirname, '..');
/** Inside the folder of the benchmark, so that packages can be resolved. */
const BUILT = path.join(BENCH, '.cache', 'start');

const FIRST_DELTA = `import { writeSync } from 'node:fs';
const [file, baseURL] = process.argv.slice(2);
const { contender } = await import(file);
const onDelta = () => { writeSync(1, String(performance.now())); process.exit(); };
const task = { baseURL, model: 'text:10', stream: true, maxTurns: 10, onDelta, step: () => '' };
await contender.prepare(task)();
`;

/** Contenders as JavaScript, because stripping types is not part of the start. */
export function buildStart(entries: readonly Entry[]): void {
  rmSync(BUILT, { recursive: true, force: true });
  for (const file of globSync('{contenders,peers,server,loop}/*.ts', { cwd: BENCH })) {
    const target = path.join(BUILT, file.replace(/\.ts$/, '.js'));
    mkdirSync(path.dirname(target), { recursive: true });
    const script = stripTypeScriptTypes(readFileSync(path.join(BENCH, file), 'utf8'));
    writeFileSync(target, script.replaceAll(/(from '\.[^']*)\.ts'/g, "$1.js'"));
  }
  cpSync(path.join(BENCH, 'package.json'), path.join(BUILT, 'package.json'));
  writeFileSync(path.join(BUILT, 'bare.js'), '');
  writeFileSync(path.join(BUILT, 'first-delta.js'), FIRST_DELTA);
  for (const { id, imports } of entries) {
    const lines = imports.map((name) => `import '${name}';\n`).join('');
    writeFileSync(path.join(BUILT, `import-${id}.js`), `${lines}process.exit();\n`);
  }
}

/** Wall milliseconds of a process that imports the contender, minus those of an empty process. */
export async function importTime({ id }: Entry): Promise<Verdict> {
  const bare = await run(['bare.js']);
  const loaded = await run([`import-${id}.js`]);
  if (loaded.code !== 0) return { type: 'failed', what: 'it cannot be imported' };
  return { type: 'measured', values: { ms: loaded.ms - bare.ms } };
}

/** Measured by the clock of the process, which starts with it. */
export async function firstDelta({ file }: Entry, baseURL: string): Promise<Verdict> {
  const { output } = await run(['first-delta.js', path.join(BUILT, file.replace(/\.ts$/, '.js')), baseURL]);
  const ms = Number(output);
  return ms > 0 ? { type: 'measured', values: { ms } } : { type: 'failed', what: 'no delta received' };
}

async function run(script: readonly string[]): Promise<{ ms: number; code: number; output: string }> {
  const [command, args] = node(1, script);
  const began = performance.now();
  const env = { ...process.env, MASTRA_TELEMETRY_DISABLED: '1', NODE_ENV: 'production' };
  const child = spawn(command, args, { cwd: BUILT, stdio: ['ignore', 'pipe', 'ignore'], env });
  const [output, [code]] = await Promise.all([text(child.stdout!), once(child, 'exit') as Promise<[number]>]);
  return { ms: performance.now() - began, code, output };
}
