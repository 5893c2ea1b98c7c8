import type { ContenderId } from '../contenders/list.ts';
import { medianFor, type Row } from './results.ts';

/** Performance targets: a ratio to another contender in the same run, or an absolute value. */
interface Target {
  readonly row: string;
  readonly metric: string;
  readonly who?: ContenderId;
  readonly relativeTo?: ContenderId;
  readonly atMost: number;
}

export interface Judged {
  readonly what: string;
  readonly atMost: string;
  readonly is: string;
  /** `close`: above the target by less than a significant difference. `tie`: neither is ahead. */
  readonly verdict: 'met' | 'close' | 'tie' | 'missed';
}

/** Smaller differences are not significant. */
const TIE = 1.25;

const TARGETS: readonly Target[] = [
  { row: 'W1-whole', metric: 'cpu', relativeTo: 'fast-floor', atMost: 1.5 },
  { row: 'W1-stream', metric: 'cpu', relativeTo: 'fast-floor', atMost: 1.5 },
  { row: 'W2', metric: 'growth', relativeTo: 'fast-floor', atMost: 1 },
  { row: 'W2', metric: 'total', relativeTo: 'fast-floor', atMost: 1.6 },
  { row: 'W3a', metric: 'cpu', relativeTo: 'fast-floor', atMost: 1.5 },
  { row: 'W3c', metric: 'cpu', relativeTo: 'fast-floor', atMost: 1.3 },
  { row: 'W4', metric: 'cpu', relativeTo: 'fast-floor', atMost: 1.6 },
  { row: 'W4', metric: 'memory', atMost: 150 },
  { row: 'W5', metric: 'wall', atMost: 1.1 },
  { row: 'W6-import', metric: 'ms', atMost: 60 },
  { row: 'W6-install', metric: 'packages', atMost: 10 },
  { row: 'W6-install', metric: 'megabytes', atMost: 8 },
  { row: 'W7-whole', metric: 'cpu', relativeTo: 'minimal', atMost: 7 },
  { row: 'W7-stream', metric: 'cpu', relativeTo: 'minimal', atMost: 7 },
  { row: 'W8-1', metric: 'cpu', who: 'treadle-sqlite', relativeTo: 'treadle', atMost: 2 },
  { row: 'W8-1', metric: 'wall', who: 'treadle-sqlite', relativeTo: 'treadle', atMost: 1.5 },
  { row: 'W8-slow', metric: 'delay', who: 'treadle-sqlite', atMost: 5 },
  { row: 'W8-100', metric: 'cpu', who: 'treadle-sqlite', relativeTo: 'treadle', atMost: 1.5 },
];

/** Rows in which Treadle has to be ahead of every peer. */
const LEADS = /^W[123457]/;

export function judge(rows: readonly Row[]): Judged[] {
  const judged = TARGETS.flatMap((target) => {
    const row = rows.find(({ workload, metric }) => workload.id === target.row && metric.id === target.metric);
    return row ? judgeTarget(row, target) : [];
  });
  return [...judged, ...rows.filter(({ workload }) => LEADS.test(workload.id)).flatMap(judgeLead)];
}

function judgeTarget(row: Row, { who = 'treadle', relativeTo, atMost }: Target): Judged[] {
  const value = medianFor(row, who);
  const base = relativeTo === undefined ? 1 : medianFor(row, relativeTo);
  if (value === undefined || base === undefined) return [];
  const unit = relativeTo === undefined ? row.metric.unit : `x ${relativeTo}`;
  const ratio = value / base;
  const verdict = ratio <= atMost ? 'met' : relativeTo !== undefined && ratio <= atMost * TIE ? 'close' : 'missed';
  const what = `${row.workload.id} ${row.metric.title}${who === 'treadle' ? '' : ` (${who})`}`;
  return [{ what, atMost: `${atMost} ${unit}`.trim(), is: `${ratio.toFixed(2)} ${unit}`.trim(), verdict }];
}

function judgeLead(row: Row): Judged[] {
  const ours = medianFor(row, 'treadle');
  const peers = row.cells.filter(({ entry, figure }) => entry.kind === 'peer' && figure);
  if (ours === undefined || peers.length === 0) return [];
  const best = peers.reduce((a, b) => (b.figure!.median < a.figure!.median ? b : a));
  const ratio = ours / best.figure!.median;
  const verdict = ratio < 1 / TIE ? 'met' : ratio <= TIE ? 'tie' : 'missed';
  const what = `${row.workload.id} ${row.metric.title}, ahead of the best peer (${best.entry.name})`;
  return [{ what, atMost: '1 x', is: `${ratio.toFixed(2)} x`, verdict }];
}
