import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { node } from '../measure/pinned.ts';
import type { FrontOptions, OpenFront, Usage } from './front.ts';

/** The options of a server process, as JSON in its first argument. */
export type ServerJob = Pick<FrontOptions, 'provider' | 'scripts' | 'attacked'>;

/** The messages of a server process: once its address, and its usage for each request. */
export type ServerMessage = { readonly baseURL: string } | Usage;

/** Starts a server in its own process, on its own core. It ends when its channel is closed, and so with this process. */
export async function startFront(
  file: URL,
  { provider, scripts, attacked = false, flags }: FrontOptions,
  fields: OpenFront['fields'] = {},
): Promise<OpenFront> {
  const job: ServerJob = { provider, scripts, attacked };
  const [command, args] = node(1, ['--expose-gc', ...flags, file.pathname, JSON.stringify(job)]);
  const child = spawn(command, args, {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...process.env, NODE_ENV: 'production' },
  });
  // The log is written completely but only its end is used, to report why the server did not start.
  let lastOutput = '';
  child.stderr!.on('data', (bytes: Buffer) => (lastOutput = bytes.toString()));
  const exited = once(child, 'exit');
  const nextMessage = async <T>(): Promise<T> => {
    const [message] = (await Promise.race([once(child, 'message'), exited.then(() => [undefined])])) as [T | undefined];
    if (message === undefined) throw new Error(`the server ended: ${lastOutput.trim().split('\n').at(-1)}`);
    return message;
  };
  const { baseURL } = await nextMessage<{ baseURL: string }>();
  return {
    baseURL,
    fields,
    usage() {
      child.send('usage');
      return nextMessage<Usage>();
    },
    async close() {
      if (child.connected) child.disconnect();
      await exited;
    },
  };
}
