import { addUsage, type Usage } from '@treadle/core';
import { costText } from '@treadle/core/describe';
import type { PolicyRules } from '@treadle/core/policy';
import type { Session } from '../run/session.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';
import type { Spent } from './slash-command.ts';

export const LEVELS = {
  0: 'read-only: changes nothing',
  1: 'supervised: asks before it changes something',
  2: 'bounded: asks outside of its lists and the sandbox',
  3: 'full: asks about nothing that it does not deny',
} as const;

/** What a chat starts with, and how to change it. */
export function firstLines({ options, place }: Session, width: number): readonly string[] {
  const { autonomy = 1 } = (options.policy?.rules ?? {}) as PolicyRules;
  const names = (options.tools ?? []).map(({ name }) => exactLine(name));
  const [sandbox = 'none'] = (place.sandbox ?? '').replace(/^Sandbox: /, '').split('\n');
  const rows = [
    ['model', options.model.id, '/model NAME'],
    ['sandbox', sandbox || 'none', 'orchestrator.tools in treadle.toml'],
    ['policy', `level ${autonomy}, ${LEVELS[autonomy]}`, 'policy.autonomy in treadle.toml'],
    ['tools', names.length === 0 ? 'none' : `${names.length}: ${names.join(', ')}`, '--tools'],
    place.instructions === undefined
      ? ['project', 'no AGENTS.md', '/init writes one']
      : ['project', place.instructions.replace(/^Instructions: /, ''), 'AGENTS.md'],
  ] as const;
  return rows.map(([name, value, change]) => {
    const label = `  ${name.padEnd(8)} `;
    const how = ` (${change})`;
    // A narrow terminal has no room for how to change it. /help says it.
    const room = width - 1 - label.length;
    return room - how.length < 20
      ? `${label}${oneLine(value, Math.max(room, 1))}`
      : `${label}${oneLine(value, room - how.length)}${how}`;
  });
}

/** What the run has used so far, besides what the chat had before. */
export interface LiveUse {
  readonly usage: Usage;
}

/** The status line: model, tokens, how much of the context they fill, and cost. */
export function statusText(
  { options, contextWindow }: Pick<Session, 'options' | 'contextWindow'>,
  { spent, contextTokens }: { readonly spent: Spent; readonly contextTokens: number },
  live: LiveUse,
): string {
  const usage = addUsage(spent.usage, live.usage);
  const tokens = usage.inputTokens + usage.outputTokens;
  const share = Math.round((100 * contextTokens) / contextWindow);
  return [
    options.model.id,
    ...(tokens > 0 ? [`${tokens.toLocaleString('en')} tokens`] : []),
    ...(contextTokens > 0 ? [`${share}% of ${plural(Math.round(contextWindow / 1_000), 'k', 'k')} context`] : []),
    ...(usage.cost ? [costText(usage.cost)] : []),
  ].join(' · ');
}
