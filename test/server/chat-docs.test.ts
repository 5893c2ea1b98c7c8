import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { demo } from '@treadle/models';
import { expect, test } from 'vitest';
import { startInProcess } from './support/in-process.ts';

test('the curl commands of docs/chat.md work, one after the other', async () => {
  const page = await readFile(path.resolve(import.meta.dirname, '../../docs/chat.md'), 'utf8');
  const commands = [...page.matchAll(/^```sh\n(.*?)^```/gms)].flatMap(([, block]) =>
    block!.trim().replaceAll('\\\n', '').split('\n'),
  );
  expect(commands.length).toBeGreaterThan(5);
  await using server = await startInProcess(demo());
  let id = 'conv_…';
  for (const command of commands) {
    const { stdout } = await promisify(execFile)('sh', [
      '-c',
      command
        .replace('curl ', 'curl -sS --fail-with-body ')
        .replace('http://127.0.0.1:3210', server.url)
        .replace('conv_…', id),
    ]);
    expect(stdout, command).not.toBe('');
    id = /conv_[0-9a-f]+/.exec(stdout)?.[0] ?? id;
  }
});
