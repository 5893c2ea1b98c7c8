import { parseArgs } from 'node:util';
import { CONTENDERS, entryOf, type Entry } from './contenders/list.ts';
import { WORKLOADS } from './workloads/list.ts';
import type { Workload } from './workloads/workload.ts';

export interface Options {
  readonly workloads: readonly Workload[];
  readonly contenders: readonly Entry[];
  readonly repeats: number;
  readonly quick: boolean;
  readonly profile: string | undefined;
}

export const HELP = `npm run bench -- [options]

  --only W1,S2                  only these workloads: ${[...new Set(WORKLOADS.map(({ id }) => id.split('-', 1)[0]))].join(', ')},
                                or one of their rows: W1-stream, W6-import
  --contenders treadle,ai       only these: ${CONTENDERS.map(({ id }) => id).join(', ')}
  --repeats 5                   number of measurements; the report shows the median
  --quick                       short measurements and two repeats, for a first impression
  --profile FOLDER              write a CPU profile of each measurement to FOLDER (profiling distorts the results)
  --help                        show this help

Writes bench/results/latest.json, latest.md and latest.svg.`;

/** Undefined for `--help`. Throws for unknown options and names. */
export function optionsOf(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: 'string' },
      contenders: { type: 'string' },
      repeats: { type: 'string' },
      quick: { type: 'boolean', default: false },
      profile: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return undefined;
  const repeats = Number(values.repeats ?? (values.quick ? 2 : 5));
  if (!Number.isInteger(repeats) || repeats < 1) throw new Error('--repeats must be a positive integer');
  return {
    workloads: values.only === undefined ? WORKLOADS : values.only.split(',').flatMap(chosen),
    contenders: values.contenders === undefined ? CONTENDERS : values.contenders.split(',').map(entryOf),
    repeats,
    quick: values.quick,
    profile: values.profile,
  };
}

function chosen(name: string): Workload[] {
  const found = WORKLOADS.filter(({ id }) => id.toLowerCase() === name.toLowerCase() || startsWith(id, name));
  if (found.length === 0)
    throw new Error(`Unknown workload '${name}'. Workloads: ${WORKLOADS.map(({ id }) => id).join(', ')}`);
  return found;
}

/** W3 is W3a and W3c, W1 is W1-stream and W1-whole. */
function startsWith(id: string, name: string): boolean {
  return /^([ws]\d|attacks)$/i.test(name) && id.toLowerCase().startsWith(name.toLowerCase());
}
