import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { memoryJournal, runLoop, textOf, type KeptResources } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { resourceKeeper } from '@treadle/store';
import { codingTools, local, type ExecOps } from '@treadle/tools';
import { ENGINE_NAMES, installedEngine, sandboxed } from '@treadle/tools/sandbox';
import { needs, uses } from '../needs.ts';
import { useDisk } from '../on-disk.ts';

useDisk();

const engine = installedEngine('bubblewrap');

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-rooms-')));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** The port is in a network of its own. */
const SERVER = `echo ready >/tmp/note; exec python3 -c "
import socket
server = socket.create_server(('127.0.0.1', 8080))
print('up', flush=True)
while True: server.accept()[0].send(b'hello')
"`;
const CLIENT = '(exec 3<>/dev/tcp/127.0.0.1/8080 && head -c 5 <&3) 2>&1; cat /tmp/note';

/** Runs of one conversation after another, and the results of their calls. */
function conversations(): {
  readonly keeper: ReturnType<typeof resourceKeeper>;
  results(runId: string, kept: KeptResources, ...calls: (readonly [string, object])[]): Promise<readonly string[]>;
} {
  const ops = local(folder);
  const bash = sandboxed(ops, engine!);
  const tools = codingTools(ops, { bash, git: bash });
  const journal = memoryJournal();
  return {
    keeper: resourceKeeper(),
    async results(runId, kept, ...calls) {
      const texts: string[] = [];
      const script = calls.map(([name, input]) => ({ calls: [{ name, arguments: input as Record<string, unknown> }] }));
      await runLoop({
        model: scriptedModel([...script, 'Done.']),
        tools,
        journal,
        runId,
        kept,
        input: 'Go.',
        onItem: (item) => void (item.type === 'call-answered' && texts.push(textOf(item.result.content))),
      });
      return texts;
    },
  };
}

describe.runIf(needs('bubblewrap', engine !== undefined))('the programs of a conversation', () => {
  it('share the loopback and /tmp: in the background, in a session and in a later run, but in no other one', async () => {
    const { keeper, results } = conversations();
    try {
      const [, up, once, session] = await results(
        'a',
        keeper.after(undefined),
        ['bash', { command: SERVER, background: true }],
        ['background_read', { handle: 'bash-t1.0', wait_ms: 20_000 }],
        ['bash', { command: CLIENT }],
        ['bash', { command: CLIENT, session: 'one' }],
      );
      expect(up).toContain('up');
      for (const text of [once, session]) expect(text).toContain('helloready');
      const [later] = await results('b', keeper.after('a'), ['bash', { command: CLIENT }]);
      expect(later).toContain('helloready');
      const [other] = await results('c', keeper.after(undefined), ['bash', { command: CLIENT }]);
      expect(other).toContain('refused');
      expect(other).not.toContain('ready');
    } finally {
      await keeper.close();
    }
  });

  it('have processes of their own: in the background they are reached by the tools for them, in a session by its shell', async () => {
    const { keeper, results } = conversations();
    const see = 'ps ax | grep -c "[s]leep 4545"';
    try {
      const [, other, , ended, started, jobs] = await results(
        'a',
        keeper.after(undefined),
        ['bash', { command: 'echo up; exec sleep 4545', background: true }],
        ['bash', { command: see }],
        ['background_stop', { handle: 'bash-t1.0' }],
        ['background_read', { handle: 'bash-t1.0' }],
        ['bash', { command: 'sleep 4545 & echo started', session: 'one' }],
        ['bash', { command: `${see}; kill %1; wait; ${see}`, session: 'one' }],
      );
      expect(other).toContain('0\n[exit code 1]');
      expect(ended).not.toContain('is running');
      expect(started).toContain('started');
      expect(jobs).toMatch(/^1\n(.*\n)*0\n/);
    } finally {
      await keeper.close();
    }
  });

  it('do not see a private file beside the folder, also after the host has replaced it', async () => {
    const [work, other] = [join(folder, 'work'), join(folder, 'other')];
    for (const one of [work, other]) mkdirSync(one);
    const secret = join(other, '.env');
    writeFileSync(secret, 'KEY=1\n');
    writeFileSync(join(other, 'note'), 'seen\n');
    const { exec } = sandboxed(local(work), engine!, { readable: () => [other] });
    const room = await exec.sandbox!.openRoom();
    const see = async (): Promise<string> => {
      const { output } = await exec.start({ argv: ['cat', secret, join(other, 'note')], room, narrowedBy: ['x'] });
      let text = '';
      for await (const { bytes } of output) text += Buffer.from(bytes).toString();
      return text.replaceAll(/[^ ]*cat: .*\n/g, 'denied\n');
    };
    try {
      for (const key of ['KEY=2\n', 'KEY=3\n']) {
        expect(await see()).toBe('denied\nseen\n');
        // The mask of the keeper is gone with the file.
        writeFileSync(`${secret}.new`, key);
        renameSync(`${secret}.new`, secret);
      }
      expect(await see()).toBe('denied\nseen\n');
    } finally {
      await room.close();
    }
  });
});

/** A shell that runs while other programs are started, and a program that is started beside it. */
async function besideSession(
  exec: ExecOps,
  during: readonly (readonly [session: string, other: string])[],
): Promise<readonly string[]> {
  const room = await exec.sandbox!.openRoom();
  const session = await exec.start({ argv: ['bash'], writable: true, room });
  const printed = session.output[Symbol.asyncIterator]();
  const texts: string[] = [];
  try {
    for (const [command, other] of during) {
      await session.write(`${command}; echo done\n`);
      for (let text = ''; !text.includes('done\n');) {
        const { value, done } = await printed.next();
        if (done) throw new Error('The session has ended.');
        text += Buffer.from(value.bytes).toString();
      }
      let text = '';
      try {
        const { output } = await exec.start({ argv: ['bash', '-c', other], room });
        for await (const { bytes } of output) text += Buffer.from(bytes).toString();
      } catch (error) {
        text = (error as Error).message;
      }
      texts.push(text);
    }
    return texts;
  } finally {
    await session.kill();
    await room.close();
  }
}

describe.runIf(needs('bubblewrap', engine !== undefined))('while a session runs', () => {
  it('what git on the host would obey is renamed', async () => {
    const { exec } = sandboxed(local(folder), engine!);
    const session = await exec.start({ argv: ['bash'], writable: true });
    try {
      await session.write('git init -q new && git -C new config core.fsmonitor ./evil\n');
      const config = join(folder, 'new', '.git', 'config.blocked');
      await expect.poll(() => existsSync(config), { timeout: 20_000 }).toBe(true);
    } finally {
      await session.kill();
    }
    let text = '';
    for await (const { bytes } of session.output) text += Buffer.from(bytes).toString();
    expect(text).toContain('commands may not create config');
  });
});

describe('a program that replaces what a sandbox has to mount for the next one', () => {
  for (const name of ENGINE_NAMES) {
    const installed = installedEngine(name);
    const isExpected = name === 'bubblewrap' || name === 'firejail';
    it.runIf(isExpected ? needs(name, installed !== undefined) : uses(name, installed !== undefined))(
      `shows it nothing of the host (${name})`,
      async () => {
        const [work, home, tools] = ['work', 'home', 'tools'].map((one) => join(folder, one));
        for (const one of [work!, home!, tools!]) mkdirSync(one);
        for (const one of [home!, tools!]) writeFileSync(join(one, 'note'), 'of the host');
        const { exec } = sandboxed(local(work!), installed!, { home: home!, expose: [tools!] });
        const texts = await besideSession(exec, [
          ['mkdir a b; touch a/.env b/.env', 'ls a b >/dev/null'],
          ['mv a a2; mv b b2; ln -s ../home a; ln -s ../tools b', 'cat ~/note a/note; echo x >b/written'],
        ]);
        expect(texts.join('')).not.toContain('of the host');
        expect(readdirSync(tools!)).toEqual(['note']);
      },
    );
  }
});
