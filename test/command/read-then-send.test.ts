import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startRemoteServer, type RemoteServer } from '../mcp/remote-server.ts';
import { fakeTerminal, type FakeTerminal } from './fake-terminal.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

/* A run that has read something private and something from outside asks before it could send anything, with the real tools. */

let play: Playground;
let remote: RemoteServer;
let server: ScriptedOpenAi;
beforeEach(async () => {
  play = await playground();
  remote = await startRemoteServer();
  await play.write('.npmrc', 'token=secret\n');
});
afterEach(async () => {
  await server.close();
  await remote[Symbol.asyncDispose]();
  await play.remove();
});

/** Allows everything that lists and entries can allow. */
const configuration = (policy = ''): string => `[orchestrator.tools]
enable_sandboxing = false
[policy]
autonomy = 2
${policy}
[policy.commands]
allow = ["touch *", "cat *"]
[policy.paths]
write = ["**"]
[policy.tools]
bash = "allow"
read_note = "allow"
[mcp.servers.notes]
url = "${remote.url}"
approval = "never"
`;

const calling = (name: string, input: object): Step => ({ calls: [{ name, arguments: JSON.stringify(input) }] });
const bash = (command: string): Step => calling('bash', { command });
const NOTE = calling('read_note', {});

async function open(policy: string, ...steps: readonly Step[]): Promise<FakeTerminal> {
  await play.write('treadle.toml', configuration(policy));
  server = await scriptedOpenAi([...steps, { text: ['Done.'] }]);
  return fakeTerminal(['run', 'go', '--model', 'scripted', '--base-url', server.baseURL], play.folder);
}

const isThere = (file: string): boolean => existsSync(join(play.folder, file));

test.each<[string, Step, string]>([
  ['the tool read', calling('read', { path: '.npmrc' }), 'read .npmrc by read'],
  ['a command', bash('cat .npmrc'), 'command cat .npmrc by bash'],
])('%s reads, a server of tools answers, and each command is asked about', async (_, reading, cause) => {
  const steps = [bash('touch before'), reading, bash('touch between'), NOTE, bash('touch after'), bash('touch again')];
  const { type, shows, exit, screen } = await open('', ...steps);

  await shows('which is private ("**/.npmrc")');
  await shows('Allow it? [y/N/e] ');
  expect(isThere('before')).toBe(true);
  type('y\r');
  await shows('the note');

  expect(isThere('between')).toBe(true);
  await shows(
    `it would run "touch after", which may reach the network, and the run has seen private data (${cause}) and content from ` +
      'outside (its result by read_note)',
  );
  // The answer counts for this call only, so it cannot be given for the rest of the run.
  await shows('Allow it? [y/N/e] ');
  type('y\r');
  await shows('it would run "touch again"');
  await shows('Allow it? [y/N/e] ');
  type('n\r');
  await shows('Done.\n');
  expect(await exit).toBe(0);
  expect(screen().match(/Allow it\?/g)).toHaveLength(3);
  expect([isThere('after'), isThere('again')]).toEqual([true, false]);
});

test('strict denies such commands, and what only reads still runs', async () => {
  const steps = [NOTE, calling('read', { path: '.npmrc' }), bash('touch after'), bash('cat notes.txt')];
  const { type, shows, exit, screen } = await open('exposure = "strict"', ...steps);
  await shows('Allow it? [y/N/e] ');
  type('y\r');
  await shows('was denied: it would run "touch after"');
  await shows(play.nonce);
  await shows('Done.\n');
  expect(await exit).toBe(0);
  expect(screen().match(/Allow it\?/g)).toHaveLength(1);
  expect(isThere('after')).toBe(false);
});
