import type { Colours } from '../colours.ts';
import { oneLine, padded } from '../printable.ts';
import type { KeyStanding, ListedModel } from './listed-model.ts';
import { passes, probeText } from './probe-text.ts';
import type { Probe } from './probe.ts';

export interface Row extends ListedModel {
  readonly test?: Probe;
}

const WIDEST = 40;

/** One line per model below a line of headings. */
export function modelTable(rows: readonly Row[], colours: Colours): readonly string[] {
  const tested = rows.some(({ test }) => test !== undefined);
  const headings = ['NAME', 'PROVIDER', 'MODEL', 'HOST', 'KEY'];
  const lines = rows.map((row) =>
    [
      `${row.name}${row.isDefault ? ' (default)' : ''}`,
      row.provider,
      row.model ?? '',
      row.host ?? 'in this process',
      keyText(row.key),
    ].map((cell) => oneLine(cell, WIDEST)),
  );
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...lines.map((line) => line[column]!.length)),
  );
  const joined = (cells: readonly string[]): string =>
    cells.map((cell, column) => padded(cell, widths[column]!)).join('  ');
  return [
    colours.dim(`${joined(headings)}${tested ? '  TEST' : ''}`.trimEnd()),
    ...lines.map((line, index) => {
      const { test } = rows[index]!;
      const paint = test !== undefined && !passes(test) ? colours.red : colours.plain;
      return `${joined(line)}${test === undefined ? '' : `  ${paint(probeText(test))}`}`.trimEnd();
    }),
  ];
}

function keyText({ variable, standing }: KeyStanding): string {
  if (variable === undefined) return 'none needed';
  return { set: `${variable} is set`, missing: `${variable} is not set`, 'not-needed': 'none needed' }[standing];
}
