import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Step } from '../command/scripted-openai.ts';
import { useServeFixture } from './serve-command.ts';

const fixture = useServeFixture();

const calling = (name: string, input: object): Step => ({ calls: [{ name, arguments: JSON.stringify(input) }] });

const LINES = `[server]
tools = ["coding"]
wait_for_answers = true
[orchestrator.tools]
enable_sandboxing = false
[policy]
autonomy = 2
[policy.commands]
allow = ["touch *"]
[policy.paths]
read = ["**", ".npmrc"]
write = ["**"]
`;

test('an image by its address and a private file that a list allows: the next command is asked about', async () => {
  await fixture.configure(LINES, calling('read', { path: '.npmrc' }), calling('bash', { command: 'touch sent' }));
  await fixture.play.write('.npmrc', 'token=secret\n');
  const server = await fixture.serve();
  const content = [
    { type: 'input_text', text: 'Look' },
    { type: 'input_image', image_url: 'https://example.org/a.png', detail: 'auto' },
  ];
  const tools = [{ type: 'mcp', server_label: 'treadle' }];
  const { body } = await server.respond({ input: [{ role: 'user', content }], tools, background: true });
  let run = (await server.get(`/v1/runs/${body.id}`)).body as unknown as { status: string; waiting: readonly object[] };
  while (run.status === 'running') run = (await server.get(`/v1/runs/${body.id}`)).body as never;
  expect(run).toMatchObject({
    status: 'paused',
    waiting: [
      {
        type: 'approval',
        rule: 'exposure',
        reason:
          'it would run "touch sent", which may reach the network, and the run has seen private data (read .npmrc by read) and ' +
          'content from outside (attached https://example.org/a.png)',
      },
    ],
  });
  expect(existsSync(join(fixture.play.folder, 'sent'))).toBe(false);
});
