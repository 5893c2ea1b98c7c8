/** The benchmark: `npm run bench -- --help`. Installs missing peers, builds Treadle, measures and reports. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import path from 'node:path';
import type { Entry } from './contenders/list.ts';
import { installed } from './measure/install.ts';
import type { Verdict } from './measure/job.ts';
import { measure } from './measure/measure.ts';
import { PINNING } from './measure/pinned.ts';
import { startServer } from './measure/server.ts';
import { buildStart, firstDelta, importTime } from './measure/start.ts';
import { HELP, optionsOf, type Options } from './options.ts';
import { markdownOf } from './report/markdown.ts';
import { plotOf } from './report/plot.ts';
import type { Results, Series } from './report/results.ts';
import { textOf } from './report/text.ts';
import { takesPart } from './workloads/list.ts';
import type { Values, Workload } from './workloads/workload.ts';

const BENCH = import.meta.dirname;
/** A measurement that takes longer is aborted. */
const LIMIT_MS = 180_000;

interface Pair {
  readonly workload: Workload;
  readonly entry: Entry;
  readonly samples: Values[];
  failure?: Exclude<Verdict, { type: 'measured' }>;
}

await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<void> {
  const options = readOptions(args);
  if (!options) return;
  prepare();
  const pairs = options.workloads.flatMap((workload) =>
    options.contenders
      .filter((entry) => takesPart(workload, entry))
      .map((entry): Pair => ({ workload, entry, samples: [] })),
  );
  await measureAll(pairs, options);
  const results: Results = {
    date: new Date().toISOString(),
    machine: { node: process.version, cpu: `${cpus()[0]!.model}, ${cpus().length} cores`, pinning: PINNING },
    repeats: options.repeats,
    quick: options.quick,
    versions: versions(),
    series: pairs.filter(({ failure }) => failure?.type !== 'absent').map(seriesOf),
  };
  write(results);
  const absent = pairs.flatMap(({ entry, failure }) =>
    failure?.type === 'absent' ? `${entry.name} (${failure.what})` : [],
  );
  if (absent.length > 0) console.log(`skipped: ${[...new Set(absent)].join('; ')}`);
}

function readOptions(args: readonly string[]): Options | undefined {
  try {
    const options = optionsOf(args);
    if (!options) console.log(HELP);
    return options;
  } catch (thrown) {
    console.error(`${(thrown as Error).message}\n\n${HELP}`);
    process.exitCode = 2;
    return undefined;
  }
}

/** Installs the peers if their lock file is newer than the installation, and always builds Treadle. */
function prepare(): void {
  const marker = path.join(BENCH, 'node_modules', '.package-lock.json');
  const lock = path.join(BENCH, 'package-lock.json');
  const shell = process.platform === 'win32';
  if (!existsSync(marker) || statSync(marker).mtimeMs < statSync(lock).mtimeMs) {
    console.log('installing the peers into bench/node_modules …');
    execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: BENCH, stdio: 'inherit', shell });
  }
  console.log('building Treadle …');
  execFileSync('npm', ['run', '--silent', 'build'], { cwd: path.dirname(BENCH), stdio: 'inherit', shell });
}

/** Performs repeat r of every contender before repeat r + 1 of any, so that noise affects all of them. */
async function measureAll(pairs: readonly Pair[], options: Options): Promise<void> {
  const server = await startServer();
  buildStart(options.contenders);
  const began = performance.now();
  let done = 0;
  const total = pairs.reduce((sum, { workload }) => sum + repeatsOf(workload, options), 0);
  try {
    for (const workload of options.workloads) {
      for (let repeat = 1; repeat <= repeatsOf(workload, options); repeat++) {
        for (const pair of pairs.filter((one) => one.workload === workload)) {
          done++;
          if (pair.failure) continue;
          showProgress(
            `${workload.id} ${pair.entry.name}, repeat ${repeat}; ${done} of ${total}, ${remainingTime(began, done, total)} left`,
          );
          const verdict = await once(pair, server.baseURL, options);
          if (verdict.type === 'measured') pair.samples.push(verdict.values);
          else pair.failure = verdict;
        }
      }
    }
  } finally {
    server.stop();
    showProgress('');
  }
}

function repeatsOf({ id }: Workload, { repeats }: Options): number {
  return id === 'W6-install' ? 1 : repeats;
}

async function once({ workload, entry }: Pair, baseURL: string, { quick, profile }: Options): Promise<Verdict> {
  if (workload.id === 'W6-install') return installed(entry);
  if (workload.id === 'W6-import') return importTime(entry);
  if (workload.id === 'W6-delta') return firstDelta(entry, baseURL);
  const times = quick ? { warmUpMs: 300, measureMs: 400 } : { warmUpMs: 800, measureMs: 1_000 };
  const name = `--cpu-prof-name=${workload.id}-${entry.id}.cpuprofile`;
  const flags = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${path.resolve(profile)}`, name];
  const job = { contender: entry.id, workload: workload.id, baseURL, ...times };
  if (workload.where === 'served') return measure({ ...job, serverFlags: flags }, LIMIT_MS);
  return measure({ ...job, serverFlags: [] }, LIMIT_MS, flags);
}

/** Overwrites one line on a terminal; otherwise prints a line per measurement. */
function showProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${text}`);
  else if (text !== '') process.stderr.write(`${text}\n`);
}

function remainingTime(began: number, done: number, total: number): string {
  if (done < 2) return '…';
  const seconds = ((performance.now() - began) / (done - 1)) * (total - done + 1) * 0.001;
  return seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

function seriesOf({ workload, entry, samples, failure }: Pair): Series {
  const base = { workload: workload.id, contender: entry.id, samples: failure ? [] : samples };
  if (!failure) return base;
  return failure.type === 'wrong' ? { ...base, wrong: failure.what } : { ...base, failed: failure.what };
}

function versions(): Record<string, string> {
  const { dependencies } = JSON.parse(readFileSync(path.join(BENCH, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  return dependencies;
}

function write(results: Results): void {
  const folder = path.join(BENCH, 'results');
  mkdirSync(folder, { recursive: true });
  const text = textOf(results);
  writeFileSync(path.join(folder, 'latest.json'), `${JSON.stringify(results, null, 2)}\n`);
  writeFileSync(path.join(folder, 'latest.md'), markdownOf(results));
  writeFileSync(path.join(folder, 'latest.svg'), plotOf(results));
  console.log(`${text}\n\nwritten to bench/results: latest.json, latest.md, latest.svg`);
}
