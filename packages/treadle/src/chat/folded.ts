import { textOf } from '@treadle/core';
import { lineOf, span, wrapLine, type Line } from '../screen/spans.ts';
import { exactLine, printable } from '../terminal/printable.ts';
import { argumentsOf } from './call-text.ts';
import type { ShownCall } from './run-view.ts';

/** What the screen shows as one line, and whole on request. */
export type Folded = { readonly type: 'call'; readonly call: ShownCall } | { readonly type: 'reasoning'; text: string };

/** The oldest are forgotten. */
export const MAX_FOLDED = 200;

/** Everything that was folded: reasoning, and calls with their arguments and results, in their order. */
export function foldedLines(folded: readonly Folded[], width: number): readonly Line[] {
  if (folded.length === 0) return [lineOf('There was no call and no reasoning yet.', 'dim')];
  const block = (text: string, breaks: 'spaces' | 'anywhere' = 'anywhere'): readonly Line[] =>
    printable(text)
      .split('\n')
      .flatMap((line) => wrapLine([span(`  ${line}`)], width, { indent: 2, breaks }));
  return folded.flatMap((one) => {
    if (one.type === 'reasoning') return [lineOf('Reasoning', 'bold'), ...block(one.text, 'spaces'), []];
    const { number, call, answered, reported, changes = [] } = one.call;
    const given = argumentsOf(call);
    const args = given
      ? Object.entries(given).map(([name, value]) => `${name}: ${valueText(value)}`)
      : [call.arguments];
    const result = answered
      ? [lineOf(answered.result.isError ? 'Error:' : 'Result:', 'dim'), ...block(textOf(answered.result.content))]
      : reported === ''
        ? [lineOf('No result yet.', 'dim')]
        : [lineOf('Output so far:', 'dim'), ...block(reported.trimEnd())];
    return [
      [span(`#${number} `, 'dim'), span(exactLine(call.name), 'bold')],
      ...args.flatMap((arg) => block(arg)),
      ...result,
      ...changes,
      [],
    ];
  });
}

function valueText(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value);
  return value.includes('\n') ? `\n${value}` : value;
}
