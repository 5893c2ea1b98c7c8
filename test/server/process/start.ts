import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Provider, Script } from '../../provider/provider.ts';
import type { FormName } from '../../provider/script.ts';
import type { Order, Settings, Start, Told, Usage } from './settings.ts';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

/** A server in a process of its own, behind which the scripted provider is. */
export interface ServerProcess extends AsyncDisposable {
  /** Without a slash at its end. The API is below `/v1`. */
  readonly url: string;
  /** Responses that it took up when it started. */
  readonly recovered: number;
  /** Resolves when a call of the tool `hold` with this tag waits. */
  readonly held: (tag: string) => Promise<void>;
  /** Lets a call of `hold` go on, also one that is still to come. */
  readonly release: (tag: string) => void;
  /** Bytes that objects take after a forced collection, without compiled code. */
  readonly heap: () => Promise<number>;
  readonly usage: () => Promise<Usage>;
  /** In order, with so long for what is under way; resolves when the process has ended. */
  readonly close: (graceMs?: number) => Promise<void>;
  /** Without any farewell. */
  readonly kill: () => Promise<void>;
}

/**
 * Starts the real server. The model `modelOf(script, form)` is that script of the provider.
 *
 *     await using provider = await startProvider();
 *     await using server = await startServer(provider);
 *     const script = await provider.script([{ text: 'Hello' }]);
 *     await fetch(`${server.url}/v1/responses`, { body: JSON.stringify({ model: modelOf(script), input: 'Hi' }), … });
 */
export async function startServer(provider: Provider, settings: Settings = {}): Promise<ServerProcess> {
  const start: Start = { provider: provider.url, settings };
  const child = fork(MAIN, [], {
    execArgv: ['--conditions=treadle-source', '--expose-gc', '--disable-warning=ExperimentalWarning'],
    env: { ...process.env, TREADLE_TEST_SERVER: JSON.stringify(start) },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const listening = Promise.withResolvers<Extract<Told, { type: 'listening' }>>();
  const heaps: ((bytes: number) => void)[] = [];
  const usages: ((usage: Usage) => void)[] = [];
  const held = new Map<string, PromiseWithResolvers<void>>();
  const holding = (tag: string): PromiseWithResolvers<void> => {
    const known = held.get(tag) ?? Promise.withResolvers<void>();
    held.set(tag, known);
    return known;
  };
  child.on('message', (told: Told) => {
    if (told.type === 'listening') listening.resolve(told);
    else if (told.type === 'held') holding(told.tag).resolve();
    else if (told.type === 'heap') heaps.shift()?.(told.bytes);
    else usages.shift()?.(told);
  });
  child.on('exit', (code) => listening.reject(new Error(`The server's process ended with ${code}.`)));
  const { url, recovered } = await listening.promise;
  const order = (one: Order): void => void child.send(one);
  const close = async (graceMs?: number): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    order({ type: 'close', ...(graceMs !== undefined && { graceMs }) });
    await once(child, 'exit');
  };
  return {
    url,
    recovered,
    held: (tag) => holding(tag).promise,
    release: (tag) => order({ type: 'release', tag }),
    heap: () =>
      new Promise((resolve) => {
        heaps.push(resolve);
        order({ type: 'heap' });
      }),
    usage: () =>
      new Promise((resolve) => {
        usages.push(resolve);
        order({ type: 'usage' });
      }),
    close,
    async kill() {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
    [Symbol.asyncDispose]: () => close(),
  };
}

/** The name that the server has for a script of the provider. */
export function modelOf({ name }: Script, form: FormName = 'openai-chat', how: 'stream' | 'whole' = 'stream'): string {
  return how === 'stream' ? `${name}/${form}` : `${name}/${form}/whole`;
}
