import { PassThrough, Readable } from 'node:stream';
import { main, type Io } from 'treadle';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';

let play: Playground;

beforeEach(async () => {
  play = await playground();
});
afterEach(() => play.remove());

/** All that is shown on one screen. */
function terminal(cwd: string) {
  let shown = '';
  let press = (): void => {};
  const watchers = new Set<() => void>();
  const screen = (): PassThrough & { readonly isTTY: true } =>
    Object.assign(
      new PassThrough().setEncoding('utf8').on('data', (text: string) => {
        shown += text;
        for (const watcher of watchers) watcher();
      }),
      { isTTY: true } as const,
    );
  const io: Io = {
    stdin: Readable.from([]),
    stdout: screen(),
    stderr: screen(),
    env: {},
    cwd,
    onInterrupt(listener) {
      press = listener;
      return () => {};
    },
    onTerminate: () => () => {},
    outliveReaders: () => {},
    quit: () => {},
  };
  const shows = (text: string): Promise<void> =>
    new Promise((resolve) => {
      const watcher = (): void => {
        if (shown.includes(text)) resolve();
      };
      watchers.add(watcher);
      watcher();
    });
  return { io, shows, shown: () => shown, press: () => press() };
}

test('a person is told what there is and what to try, and that it stops', async () => {
  await play.write('treadle.toml', '[server]\nlog_level = "silent"\n');
  const { io, shows, shown, press } = terminal(play.folder);
  const ended = main(['serve', '--port', '0', '--store', 'memory:'], io);
  await shows('Ctrl-C stops it.\n');
  const url = /Treadle listens on (\S+)\n/.exec(shown())![1]!;
  expect(shown()).toContain('this is the demo model');
  expect(shown()).toContain('Models: demo (default)\nTools:  read, glob, grep; for requests that ask\n');
  expect(shown()).toContain(`Point any OpenAI client at ${url}/v1; any key will do.`);

  // What it says to try works as it stands.
  const [, path, body] = /curl (\S+) .*-d '(.*)'\n/.exec(shown())!;
  const answer = await fetch(path!, { method: 'POST', headers: { 'content-type': 'application/json' }, body: body! });
  expect(await answer.json()).toMatchObject({
    status: 'completed',
    output: [{ type: 'mcp_call' }, { type: 'message' }],
  });

  press();
  expect(await ended).toBe(0);
  expect(shown()).toContain('Stopping; Ctrl-C again ends it at once.\n');
  await expect(fetch(`${url}/healthz`)).rejects.toThrow('fetch failed');
});
