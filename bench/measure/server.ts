import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { node } from './pinned.ts';

export interface Server {
  readonly baseURL: string;
  readonly stop: () => void;
}

/** Starts the scripted model in its own process. */
export async function startServer(): Promise<Server> {
  const file = new URL('../server/main.ts', import.meta.url).pathname;
  const [command, args] = node(0, ['--disable-warning=ExperimentalWarning', file]);
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  return { baseURL: `http://127.0.0.1:${String(port).trim()}/v1`, stop: () => void child.kill() };
}
