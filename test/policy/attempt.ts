import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { memoryJournal, runLoop, type Policy, type Tool } from '@treadle/core';
import type { RulePolicy, Touch, Verdict } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { expect } from 'vitest';

/** The lines of a data file, without comments, split at tabs. Texts are the inside of JSON strings. */
export function linesOf(file: string): string[][] {
  const text = readFileSync(fileURLToPath(import.meta.resolve(`./${file}`)), 'utf8');
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return lines.map((line) => line.split('\t').map((part) => JSON.parse(`"${part}"`) as string));
}

export interface Attempt {
  /** What the model received; undefined if people are asked. */
  readonly result: string | undefined;
  /** What the journal has about the call; undefined without a policy. */
  readonly recorded: { readonly type: Verdict['type']; readonly touches?: readonly Touch[] } | undefined;
}

/** A run in which the model makes one call, whatever it is. */
export async function attempt(tool: Tool, input: unknown, policy?: Policy): Promise<Attempt> {
  const journal = memoryJournal();
  const model = scriptedModel([{ calls: [{ name: tool.name, arguments: input }] }, 'Done.']);
  const run = { model, tools: [tool], journal, runId: 'attempt', input: 'Go on.', ...(policy && { policy }) };
  const { messages, waiting } = await runLoop(run);
  const part = messages.find(({ role }) => role === 'tool')?.content[0];
  const result =
    part?.type === 'tool-result' ? part.content.map((one) => ('text' in one ? one.text : '')).join('') : undefined;
  const judged = (await journal.read('attempt')).map(({ event }) => event).find(({ type }) => type === 'calls-judged');
  const recorded = judged?.type === 'calls-judged' ? judged.verdicts[0] : undefined;
  expect(waiting.map(({ type }) => type)).toEqual(recorded?.type === 'ask' ? ['approval'] : []);
  return { result, recorded };
}

/** The verdict of an explanation of the same call. */
export async function explained(
  policy: RulePolicy,
  { name, effect, permissions }: Tool,
  touches: readonly Touch[],
): Promise<Verdict['type']> {
  const call = { name, touches, effect, permissions: permissions ?? [] };
  return (await policy.explain(call)).verdict.type;
}
