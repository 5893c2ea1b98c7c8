/** Simulates schedules of processes, disks and clocks: `npm run simulate -- --help`. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { describeFailure, simulateMany, type Total } from './farm.ts';

const HELP = `Usage: npm run simulate -- [options]

Runs drivers, stores, servers, tools, clients and clocks in seeded schedules with crashes, power failures, stalls, takeovers,
full disks and damaged rows, and checks them after every step. Ends with exit code 1 at the first failure.

  --schedules N  How many schedules to run (default 1,000,000).
  --from S       The first seed (default 1).
  --workers N    Worker threads (default: one for each core).
  --seed S       Run only this seed, and print every step.
  --help         Print this text.
`;

const { values } = parseArgs({
  options: {
    schedules: { type: 'string', default: '1000000' },
    from: { type: 'string', default: '1' },
    workers: { type: 'string', default: String(availableParallelism()) },
    seed: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

if (values.help) process.stdout.write(HELP);
else if (values.seed !== undefined) await replaySeed(whole('seed', values.seed));
else await simulateAll();

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function replaySeed(seed: number): Promise<void> {
  const { simulate } = await import('./simulate.ts');
  const { steps, digest, failure } = await simulate(seed, { print });
  print(`Seed ${seed}: ${steps} steps, digest ${digest}, ${failure ? 'failed' : 'no failure'}.`);
  if (failure) process.exitCode = 1;
}

async function simulateAll(): Promise<void> {
  const schedules = whole('schedules', values.schedules);
  const started = performance.now();
  const rate = (total: Total): number => (total.schedules / (performance.now() - started)) * 1_000;
  let printed = 0;
  const total = await simulateMany({
    firstSeed: whole('from', values.from),
    schedules,
    workers: whole('workers', values.workers),
    stopAtFailure: true,
    onProgress(sum) {
      if (performance.now() - printed < 1_000) return;
      printed = performance.now();
      const left = Math.ceil((schedules - sum.schedules) / rate(sum));
      const line = `${sum.schedules} of ${schedules} schedules, ${rate(sum).toFixed(0)} per second, ${left} s left`;
      process.stderr.write(process.stderr.isTTY ? `\r${line} ` : `${line}\n`);
    },
  });
  if (process.stderr.isTTY) process.stderr.write('\n');
  for (const failure of total.failures.slice(0, 3)) print(describeFailure(failure));
  for (const [what, count] of [...total.covered].sort(([, a], [, b]) => b - a)) {
    print(`${((count / total.schedules) * 100).toFixed(1).padStart(5)}%  ${what}`);
  }
  print(`${total.schedules} schedules, ${total.steps} steps, ${total.failures.length} failures.`);
  if (total.failures.length > 0) process.exitCode = 1;
}

function whole(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0 && text !== '') return value;
  process.stderr.write(`--${name} is "${text}". Give a whole number of at least 0.\n`);
  return process.exit(2);
}
