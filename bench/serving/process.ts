import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { node } from '../measure/pinned.ts';
import type { FrontOptions, OpenFront, Usage } from './front.ts';

/** What the process of a server is told, as JSON in its first argument. */
export type ServerJob = Pick<FrontOptions, 'provider' | 'scripts'>;

/** What it says over its channel: once where it listens, and its usage as often as it is asked. */
export type Said = { readonly baseURL: string } | Usage;

/** Starts a server in a process and on a core of its own. It ends when its channel is closed, so also with this process. */
export async function startFront(
  file: URL,
  { provider, scripts, flags }: FrontOptions,
  fields: OpenFront['fields'] = {},
): Promise<OpenFront> {
  const job: ServerJob = { provider, scripts };
  const [command, args] = node(1, ['--expose-gc', ...flags, file.pathname, JSON.stringify(job)]);
  const child = spawn(command, args, {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...process.env, NODE_ENV: 'production' },
  });
  // Its log is written in full and read by nobody; the last of it says why it did not start.
  let complaint = '';
  child.stderr!.on('data', (bytes: Buffer) => (complaint = bytes.toString()));
  const exited = once(child, 'exit');
  const heard = async <T>(): Promise<T> => {
    const [said] = (await Promise.race([once(child, 'message'), exited.then(() => [undefined])])) as [T | undefined];
    if (said === undefined) throw new Error(`the server ended: ${complaint.trim().split('\n').at(-1)}`);
    return said;
  };
  const { baseURL } = await heard<{ baseURL: string }>();
  return {
    baseURL,
    fields,
    usage() {
      child.send('usage');
      return heard<Usage>();
    },
    async close() {
      if (child.connected) child.disconnect();
      await exited;
    },
  };
}
