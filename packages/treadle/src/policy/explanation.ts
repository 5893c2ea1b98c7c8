import type { Explanation, RuleReport } from '@treadle/core/policy';
import type { Colours } from '../terminal/colours.ts';
import { alignColumns, exactLine } from '../terminal/printable.ts';

/** A table of the rules, what each of them saw and said, and which decided. */
export function explanationLines({ verdict, rule, rules }: Explanation, { bold, dim }: Colours): readonly string[] {
  const rows = alignColumns([['RULE', 'VERDICT', 'SAW'], ...rules.map(reportRow)]);
  const [head, ...lines] = rows.map((row) => row.join('  ').trimEnd());
  const by = rule === undefined ? 'no rule objects' : `by the rule ${rule}`;
  const reason = 'reason' in verdict && verdict.reason !== undefined ? `: ${exactLine(verdict.reason)}` : '';
  return [
    bold(head!),
    ...lines.map((line, index) => (rules[index]!.rule === rule ? bold(line) : dim(line))),
    `Verdict: ${verdict.type}, ${by}${reason}`,
  ];
}

function reportRow({ rule, verdict, saw, satisfied }: RuleReport): readonly string[] {
  const said = verdict === 'none' ? '-' : verdict;
  return [rule, satisfied ? `${said}, satisfied by tools` : said, exactLine(saw)];
}
