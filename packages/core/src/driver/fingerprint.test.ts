import { expect, test } from 'vitest';
import { memoryJournal } from '../journal/memory.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

const call = { calls: [{ name: 'remote', arguments: { a: 1 } }] };

function remote(fingerprint: string, calls: string[] = []): Tool {
  return tool({
    name: 'remote',
    description: `described by ${fingerprint}`,
    needsApproval: true,
    fingerprint,
    execute: () => void calls.push(fingerprint),
  });
}

test('an approval does not count for a tool whose fingerprint has changed since', async () => {
  const journal = memoryJournal();
  const options = { journal, runId: 'r' };
  const { waiting } = await runLoop({ ...options, model: scriptedModel([call]), tools: [remote('one')], input: 'go' });
  const asked = waiting[0] as { effect: string; digest: string };
  const answer = (digest: string) => ({ type: 'approval', effect: asked.effect, digest, approved: true }) as const;

  const calls: string[] = [];
  const changed = { ...options, model: scriptedModel(['done']), tools: [remote('two', calls)] };
  const again = await runLoop({ ...changed, answers: [answer(asked.digest)] });
  expect(calls).toEqual([]);
  const [second] = again.waiting as unknown as { digest: string }[];
  expect(second!.digest).not.toBe(asked.digest);

  const done = await runLoop({ ...changed, answers: [answer(second!.digest)] });
  expect(done.outcome?.type).toBe('completed');
  expect(calls).toEqual(['two']);
});

test('an approval counts if the fingerprint is still the same', async () => {
  const journal = memoryJournal();
  const options = { journal, runId: 'r' };
  const { waiting } = await runLoop({ ...options, model: scriptedModel([call]), tools: [remote('one')], input: 'go' });
  const { effect, digest } = waiting[0] as { effect: string; digest: string };
  const calls: string[] = [];
  await runLoop({
    ...options,
    model: scriptedModel(['done']),
    tools: [remote('one', calls)],
    answers: [{ type: 'approval', effect, digest, approved: true }],
  });
  expect(calls).toEqual(['one']);
});

test('a tool gets the questions that its call has asked before', async () => {
  const journal = memoryJournal();
  const seen: unknown[] = [];
  const asking = tool({
    name: 'remote',
    description: '',
    async execute(_, { ask, asked }) {
      seen.push(asked?.map(({ key, answer }) => [key, answer?.value]));
      return ask({ prompt: 'which?', id: 'state 1' });
    },
  });
  const options = { journal, runId: 'r', tools: [asking] };
  const { waiting } = await runLoop({ ...options, model: scriptedModel([call]), input: 'go' });
  const answers = [{ type: 'answer', effect: waiting[0]!.effect, value: 'that' }] as const;
  await runLoop({ ...options, model: scriptedModel(['done']), answers });
  expect(seen).toEqual([[], [['state 1', 'that']]]);
});
