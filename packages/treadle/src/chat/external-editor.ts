import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Io } from '../terminal/io.ts';

/** The text of a message after the user has edited it with $VISUAL or $EDITOR, in a file that only this user can read. */
export async function editOutside(
  text: string,
  { env, runOnTerminal }: Required<Pick<Io, 'env' | 'runOnTerminal'>>,
): Promise<string> {
  const editor = env['VISUAL'] || env['EDITOR'] || (process.platform === 'win32' ? 'notepad' : 'vi');
  const folder = await mkdtemp(join(tmpdir(), 'treadle-message-'));
  try {
    const file = join(folder, 'message.md');
    await writeFile(file, text, { mode: 0o600 });
    const code = await runOnTerminal(`${editor} "${file}"`);
    if (code !== 0) throw new Error(`The editor (${editor}) ended with ${code}, so the message is as it was.`);
    return (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
