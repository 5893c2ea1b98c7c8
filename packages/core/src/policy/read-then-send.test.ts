import { expect, test } from 'vitest';
import { policy } from './policy.ts';
import type { CommandFacts } from './facts.ts';
import type { JudgedCall, Touch } from './port.ts';

const OUTSIDE = { what: 'read https://example.com/', tool: 'fetch' };
const PRIVATE = { what: 'read .npmrc', tool: 'read', from: 'run-1/t1.tool.0' };
const BOTH = { outside: OUTSIDE, private: PRIVATE };

const commandFacts = (command: string): CommandFacts => {
  const [name = '', ...args] = command.split(' ');
  const [urls, touches] = [args.filter((one) => one.startsWith('https:')), [] as CommandFacts['touches']];
  return { programs: [{ name, args }], touches, urls };
};

async function verdictOn(
  touches: readonly Touch[] | undefined,
  more: object = {},
  exposure: object = BOTH,
  rules = {},
) {
  const made = policy(
    { autonomy: 3, tools: { '*': 'allow' }, ...rules },
    { analysers: { command: commandFacts }, folder: '/work', clock: { now: () => 0 } },
  );
  const call = {
    id: 'c',
    name: 'act',
    input: {},
    effect: 'once',
    client: false,
    permissions: [],
    operation: undefined,
  };
  const context = { runId: 'r', turn: 2, exposure, context: undefined, signal: new AbortController().signal };
  const [verdict] = await made.judge([{ ...call, touches, ...more } as unknown as JudgedCall], context);
  return verdict!;
}

const URL: Touch = { type: 'url', url: 'https://example.org/' };
const command = (text: string): Touch => ({ type: 'command', command: text });

test.each<[string, readonly Touch[]]>([
  ['request https://example.org/', [URL]],
  ['do something that its tool does not declare', [{ type: 'unknown' }]],
  ['use the device "pi"', [{ type: 'device', device: 'pi' }]],
  ['run "node a.js", which may reach the network', [command('node a.js')]],
  ['run "git push", which may reach the network', [command('cat a'), command('git push')]],
  ['request https://x.example/', [command('cat https://x.example/')]],
])('a run that has seen both is asked before it may %s', async (way, touches) => {
  const verdict = await verdictOn(touches);
  expect(verdict).toMatchObject({
    type: 'ask',
    rule: 'exposure',
    eachTime: true,
    reason: `it would ${way}, and the run has seen private data (read .npmrc by read in run-1/t1.tool.0) and content from outside (read https://example.com/ by fetch)`,
  });
  expect(await verdictOn(touches, {}, BOTH, { exposure: 'strict' })).toMatchObject({ type: 'deny', rule: 'exposure' });
});

test.each([{}, { outside: OUTSIDE }, { private: PRIVATE }])(
  'a run that has not seen both is not asked: %j',
  async (seen) => {
    expect(await verdictOn([URL], {}, seen)).toMatchObject({ type: 'allow' });
  },
);

test.each<[string, readonly Touch[] | undefined, object]>([
  ['only reads', [{ type: 'read', path: 'a' }], {}],
  ['only writes files here', [{ type: 'write', path: 'a' }], {}],
  ['runs a program that only reads', [command('cat a')], {}],
  ['is harmless', [], {}],
  ['is executed by the client', undefined, { client: true }],
  ['runs in a sandbox without network', [command('node a.js')], { sandbox: ['network'] }],
])('a call that %s carries nothing out', async (_, touches, more) => {
  expect(await verdictOn(touches, more)).toMatchObject({ type: 'allow' });
});

test.each<[string, readonly Touch[], object]>([
  ['reaches hosts of the policy', [command('node a.js')], { sandbox: ['hosts', 'root'] }],
  ['makes a request itself', [command('node a.js'), URL], { sandbox: ['network'] }],
])('a call in a sandbox that %s is asked about', async (_, touches, more) => {
  expect(await verdictOn(touches, more)).toMatchObject({ type: 'ask', rule: 'exposure' });
});
