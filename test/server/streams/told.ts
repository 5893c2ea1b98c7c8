import { expect } from 'vitest';
import type { ScriptedReply, Step } from '../../provider/script.ts';
import { textIn, type Item, type WireResponse } from '../open-responses/asking.ts';

/** A response without what is different each time: ids, times, the name of the script. */
export function plain(response: WireResponse): unknown {
  const json = JSON.stringify(response, (key, value: unknown) => {
    if (key === 'created_at' || key === 'completed_at') return value === null ? null : 'a time';
    // What a provider proves its reasoning with.
    if (key === 'encrypted_content') return 'proof';
    // Some quote the provider, with its ids.
    if (key === 'message') return String(value).replace(/(?<=is not JSON: ).*$/s, '…');
    return key === 'model' ? 'a model' : value;
  });
  return JSON.parse(json.replaceAll(/[0-9a-f]{32}/g, 'id').replaceAll(/\/s\d+\//g, '/script/')) as unknown;
}

/** The responses of a conversation say what the model has said in these steps, each thing once. */
export function checkContent(responses: readonly WireResponse[], said: readonly Step[]): void {
  if (said.some((step) => 'fault' in step || step.finish === 'length' || step.finish === 'content-filter')) return;
  const steps = said as readonly ScriptedReply[];
  expect(responses.map(textIn).join('')).toBe(steps.map(({ text = '' }) => text).join(''));
  const items = responses.flatMap(({ output }) => output);
  const called = items.filter(({ type }) => type.endsWith('_call'));
  const calls = steps.flatMap(({ calls: some = [] }) => some);
  expect(called.map(inWords).sort()).toEqual(calls.map(inWords).sort());
  for (const item of called) checkCall(item);
  const usages = steps.map(({ usage = { input: 20, output: 10 } }) => usage);
  const sum = (pick: (response: WireResponse) => number): number => responses.reduce((all, one) => all + pick(one), 0);
  expect(sum(({ usage }) => usage!.input_tokens)).toBe(usages.reduce((all, { input }) => all + input, 0));
  expect(sum(({ usage }) => usage!.output_tokens)).toBe(usages.reduce((all, { output }) => all + output, 0));
}

function checkCall({ type, name, arguments: json, status, output }: Item): void {
  const isClients = name === 'ask_user' || name === 'pay';
  if (type === 'function_call') expect(isClients).toBe(true);
  // The client's own calls are here only if they were refused.
  else if (isClients || name === 'fail' || name === 'ghost') expect(status).not.toBe('completed');
  else if (status === 'completed') {
    const { a, b } = JSON.parse(json!) as { readonly a: number; readonly b: number };
    expect(output).toBe(String(a + b));
  }
}

function inWords({ name, arguments: json }: Pick<Item, 'name' | 'arguments'>): string {
  return `${name} ${json}`;
}
