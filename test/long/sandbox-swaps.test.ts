import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { local } from '@treadle/tools';
import { installedEngine, sandboxed } from '@treadle/tools/sandbox';
import { needs } from '../needs.ts';

const STARTS = 300;

/** Exchanges a folder with a private file and a link that leads out, as fast as it can. */
const SWAPS = `
import ctypes, os
libc = ctypes.CDLL(None)
os.mkdir('a'); open('a/.env', 'w'); os.symlink('../home', 'b')
print('ready', flush=True)
while True: libc.renameat2(-100, b'a', -100, b'b', 2)
`;

const engine = installedEngine('bubblewrap');

it.runIf(needs('bubblewrap', engine !== undefined))(
  'a program that swaps folders and links shows nothing of the host to those that are started meanwhile',
  async () => {
    const top = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-swaps-')));
    const [work, home] = [join(top, 'work'), join(top, 'home')];
    for (const one of [work, home]) mkdirSync(one);
    writeFileSync(join(home, 'note'), 'of the host');
    const { exec } = sandboxed(local(work), engine!, { home });
    const room = await exec.sandbox!.openRoom();
    const swapping = await exec.start({ argv: ['python3', '-c', SWAPS], room });
    try {
      await swapping.output[Symbol.asyncIterator]().next();
      const seen = { started: 0, refused: 0 };
      for (let at = 0; at < STARTS; at++) {
        const script = 'cat ~/note a/note; touch ~/written a/written; echo started';
        const { output } = await exec.start({ argv: ['bash', '-c', script], room });
        let text = '';
        for await (const { bytes } of output) text += Buffer.from(bytes).toString();
        expect(text).not.toContain('of the host');
        if (text.includes('started\n')) seen.started++;
        if (text.includes('was replaced')) seen.refused++;
      }
      expect(readdirSync(home)).toEqual(['note']);
      expect(seen.started).toBeGreaterThan(0);
      expect(seen.refused).toBeGreaterThan(0);
    } finally {
      await swapping.kill();
      await room.close();
      rmSync(top, { recursive: true, force: true });
    }
  },
);
