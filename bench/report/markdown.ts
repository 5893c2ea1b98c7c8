import type { Entry } from '../contenders/list.ts';
import { floorOf, numberOf, oursOf, rowsOf, type Cell, type Results, type Row } from './results.ts';
import { judge } from './targets.ts';

/** One table: a line per row, a column per contender, with the ratio to the floor in brackets. */
export function markdownOf(results: Results): string {
  const rows = rowsOf(results);
  const entries = [...new Map(rows.flatMap(({ cells }) => cells.map(({ entry }) => [entry.id, entry]))).values()];
  const { date, machine, repeats, quick } = results;
  return [
    '# Benchmark',
    `${date.slice(0, 10)}, Node ${machine.node}, ${machine.cpu}; ${machine.pinning}; medians of ${repeats} repeats${quick ? ', quick' : ''}.`,
    `Versions: ${Object.entries(results.versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', ')}.`,
    'Each cell: the median, and in brackets the ratio to the floor (the fast floor; in-process: the minimal loop; W8: Treadle alone; servers: the bare proxy).',
    table([
      ['row', ...entries.map(({ name }) => name)],
      ...rows.map((row) => [titleOf(row), ...entries.map((entry) => cellText(row, entry))]),
    ]),
    '## Spread and ratios',
    ...rows.map(detail),
    '## Targets',
    table([
      ['', 'target', 'at most', 'is'],
      ...judge(rows).map(({ verdict, what, atMost, is }) => [verdict, what, atMost, is]),
    ]),
    '',
  ].join('\n\n');
}

function titleOf({ workload, metric }: Row): string {
  return `${workload.id} ${workload.title}: ${metric.title}${metric.unit && `, ${metric.unit}`}`;
}

function cellText(row: Row, { id }: Entry): string {
  const cell = row.cells.find(({ entry }) => entry.id === id);
  if (!cell) return '–';
  if (!cell.figure) return cell.note!.startsWith('wrong') ? 'wrong' : '–';
  const base = floorOf(row) ?? oursOf(row);
  const ratio = base === undefined ? '' : ` (${(cell.figure.median / base).toFixed(1)})`;
  return numberOf(cell.figure.median, row.metric) + ratio;
}

function detail(row: Row): string {
  const [floor, ours] = [floorOf(row), oursOf(row)];
  const lines = row.cells.map(({ entry, figure, note }: Cell) => {
    if (!figure) return [entry.name, note!, '', '', ''];
    const spread = `${numberOf(figure.low, row.metric)}–${numberOf(figure.high, row.metric)}`;
    const ratioTo = (base: number | undefined): string => (base === undefined ? '' : (figure.median / base).toFixed(2));
    return [entry.name, numberOf(figure.median, row.metric), spread, ratioTo(floor), ratioTo(ours)];
  });
  return `${titleOf(row)}\n\n${table([['contender', 'median', 'spread', 'x floor', 'x Treadle'], ...lines])}`;
}

function table([head, ...lines]: readonly (readonly string[])[]): string {
  const row = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [row(head!), row(head!.map((_, at) => (at === 0 ? '---' : '---:'))), ...lines.map(row)].join('\n');
}
