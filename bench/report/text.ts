import { floorOf, numberOf, oursOf, rowsOf, type Cell, type Results, type Row } from './results.ts';
import { judge } from './targets.ts';

/** For the terminal: a block per row, the fastest first. */
export function textOf(results: Results): string {
  const rows = rowsOf(results);
  return [...rows.map(block), targets(rows)].join('\n\n');
}

function block(row: Row): string {
  const { workload, metric, cells } = row;
  const title = `${workload.id}  ${workload.title}: ${metric.title}${metric.unit && ` (${metric.unit})`}`;
  const [floor, ours] = [floorOf(row), oursOf(row)];
  const columns = ['', 'median', 'spread', floor === undefined ? '' : 'x floor', 'x ours'];
  return [title, line(columns), ...cells.toSorted(byMedian).map((cell) => line(valuesOf(cell)))].join('\n');

  function valuesOf({ entry, figure, note }: Cell): string[] {
    if (!figure) return [entry.name, note!];
    const spread = `${numberOf(figure.low, metric)}–${numberOf(figure.high, metric)}`;
    return [
      entry.name,
      numberOf(figure.median, metric),
      spread,
      ratioText(figure.median, floor),
      ratioText(figure.median, ours),
    ];
  }
}

function line([name, ...values]: readonly string[]): string {
  if (values.length === 1) return `    ${name!.padEnd(22)}${values[0]}`;
  const widths = [10, 20, 10, 10];
  return `    ${name!.padEnd(22)}${values.map((value, at) => value.padStart(widths[at]!)).join('')}`.trimEnd();
}

function byMedian(a: Cell, b: Cell): number {
  return (a.figure?.median ?? Infinity) - (b.figure?.median ?? Infinity);
}

function ratioText(value: number, base: number | undefined): string {
  return base === undefined ? '' : (value / base).toFixed(2);
}

function targets(rows: readonly Row[]): string {
  const lines = judge(rows).map(
    ({ what, atMost, is, verdict }) =>
      `    ${verdict.padEnd(8)}${what.padEnd(76)}${is.padStart(18)}   at most ${atMost}`,
  );
  return ['targets', ...lines].join('\n');
}
