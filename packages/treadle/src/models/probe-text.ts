import { printable } from '../printable.ts';
import { durationText } from '../time-text.ts';
import type { Probe } from './probe.ts';

/** Works as a model of Treadle: it answers and calls tools. Whether it streams is a matter of comfort. */
export function passes({ reachable, tools }: Probe): boolean {
  return reachable && tools === true;
}

/** `reachable, supports tools, streams`, with what it lacks. */
export function probeText({ reachable, tools, streams, ms, error }: Probe): string {
  if (!reachable) return `failed: ${error?.code ?? 'unknown'}`;
  const found = ['reachable', tools ? 'supports tools' : 'no tools', streams ? 'streams' : 'does not stream'];
  return `${found.join(', ')} (${durationText(ms)})`;
}

/** Why it does not pass. */
export function probeProblem({ reachable, tools, error }: Probe): string | undefined {
  if (!reachable) return printable(error?.message ?? 'It gave no reply.');
  if (tools) return undefined;
  const refused = error === undefined ? '' : ` It refused them: ${printable(error.message)}`;
  return `It answers, but does not call tools.${refused}`;
}
