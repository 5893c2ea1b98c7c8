import { numberOf, rowsOf, type Cell, type Results, type Row } from './results.ts';

const COLOURS = { ours: '#c2410c', floor: '#94a3b8', peer: '#334155' } as const;
const PANEL = { width: 440, label: 150, bar: 16, gap: 6, head: 34, foot: 18 };
const COLUMNS = 2;

/** Panels of bars, one per row that has a peer; shorter is better. */
export function plotOf(results: Results): string {
  const rows = rowsOf(results).filter(({ cells }) => cells.filter(({ figure }) => figure).length > 1);
  const lines: Row[][] = [];
  for (let at = 0; at < rows.length; at += COLUMNS) lines.push(rows.slice(at, at + COLUMNS));
  let y = 0;
  const panels = lines.flatMap((line) => {
    const drawn = line.map(
      (row, column) => `<g transform="translate(${column * PANEL.width + 10} ${y})">${panel(row)}</g>`,
    );
    y += Math.max(...line.map(heightOf));
    return drawn;
  });
  const width = COLUMNS * PANEL.width + 20;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${y}" width="${width}" height="${y}" font-family="system-ui, sans-serif" font-size="11">`,
    `<rect width="${width}" height="${y}" fill="#ffffff"/>`,
    ...panels,
    '</svg>\n',
  ].join('\n');
}

function shown({ cells }: Row): Cell[] {
  return cells.filter(({ figure }) => figure).toSorted((a, b) => a.figure!.median - b.figure!.median);
}

function heightOf(row: Row): number {
  return PANEL.head + shown(row).length * (PANEL.bar + PANEL.gap) + PANEL.foot;
}

function panel(row: Row): string {
  const cells = shown(row);
  const room = PANEL.width - PANEL.label - 90;
  const most = Math.max(...cells.map(({ figure }) => figure!.median), Number.MIN_VALUE);
  const { workload, metric } = row;
  const bars = cells.map(({ entry, figure }, at) => {
    const y = PANEL.head + at * (PANEL.bar + PANEL.gap);
    const long = Math.max(1, (Math.max(0, figure!.median) / most) * room);
    const middle = y + PANEL.bar - 4;
    return [
      `<text x="${PANEL.label - 8}" y="${middle}" text-anchor="end" fill="#0f172a">${escaped(entry.name)}</text>`,
      `<rect x="${PANEL.label}" y="${y}" width="${long.toFixed(1)}" height="${PANEL.bar}" rx="2" fill="${COLOURS[entry.kind]}"/>`,
      `<text x="${PANEL.label + long + 5}" y="${middle}" fill="#475569">${numberOf(figure!.median, metric)}</text>`,
    ].join('');
  });
  const unit = metric.unit && `, ${metric.unit}`;
  const head = [
    `<text x="0" y="14" font-weight="600" fill="#0f172a">${escaped(`${workload.id} ${metric.title}${unit}`)}</text>`,
    `<text x="0" y="27" font-size="10" fill="#64748b">${escaped(workload.title)}</text>`,
  ];
  return [...head, ...bars].join('\n');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
