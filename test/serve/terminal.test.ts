import { main } from 'treadle';
import { expect, test } from 'vitest';
import { testIo, useServeFixture } from './serve-command.ts';

const fixture = useServeFixture();

test('on a terminal prints the models, the tools and a request to try, and that it is stopping', async () => {
  await fixture.play.write('treadle.toml', '[server]\nlog_level = "silent"\n');
  const { io, written, waitFor, interrupt } = testIo({ cwd: fixture.play.folder, isTTY: true });
  const ended = main(['serve', '--port', '0', '--store', 'memory:'], io);
  await waitFor('Press Ctrl-C to stop.\n', 'stderr');
  const url = /Treadle listens on (\S+)\n/.exec(written.stdout)![1]!;
  expect(written.stderr).toContain('this is the demo model');
  expect(written.stderr).toContain(
    'Models: demo (default)\nTools:  read, glob, grep; for requests that ask for them\n',
  );
  expect(written.stderr).toContain(`Point any OpenAI client at ${url}/v1; any key will do.`);

  // The printed curl command works unchanged.
  const [, path, body] = /curl (\S+) .*-d '(.*)'\n/.exec(written.stderr)!;
  const answer = await fetch(path!, { method: 'POST', headers: { 'content-type': 'application/json' }, body: body! });
  expect(await answer.json()).toMatchObject({
    status: 'completed',
    output: [{ type: 'mcp_call' }, { type: 'message' }],
  });

  interrupt();
  expect(await ended).toBe(0);
  expect(written.stderr).toContain('Stopping; press Ctrl-C again to quit immediately.\n');
  await expect(fetch(`${url}/healthz`)).rejects.toThrow('fetch failed');
});
