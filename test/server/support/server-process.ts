import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { TreadleServerOptions } from '@treadle/server';
import type { Provider, Script } from '../../provider/provider.ts';
import type { FormName } from '../../provider/script.ts';
import { testStoreName } from './test-store.ts';

const MAIN = fileURLToPath(new URL('server-process-main.ts', import.meta.url));

/** The server options that a test can set. Plain JSON, because they are sent to another process. */
export type ServerSettings = Partial<Omit<TreadleServerOptions, 'models' | 'store' | 'tools' | 'executors' | 'log'>> & {
  /** The file of the store; default: in memory. */
  readonly store?: string;
  /** Default: `error`. Use `silent` where a test makes the model fail. */
  readonly logLevel?: string;
  /** Appends to journals never complete, so no run starts. */
  readonly hangsOnAppend?: boolean;
};

/** The start parameters of the process, in the environment variable `TREADLE_TEST_SERVER`. */
export interface StartParameters {
  readonly provider: string;
  /** See `openNamedStore`. */
  readonly store: string;
  readonly settings: ServerSettings;
}

/** Messages from the server process to the test. */
export type ServerMessage =
  | { readonly type: 'listening'; readonly url: string; readonly recovered: number }
  | { readonly type: 'held'; readonly tag: string }
  | { readonly type: 'heap'; readonly bytes: number }
  | ({ readonly type: 'usage' } & ResourceUsage);

/** Messages from the test to the server process. */
export type ServerOrder =
  | { readonly type: 'release'; readonly tag: string }
  | { readonly type: 'heap' }
  | { readonly type: 'usage' }
  | { readonly type: 'close'; readonly graceMs?: number };

/** Resources of the process, measured after a forced garbage collection. */
export interface ResourceUsage {
  /** Bytes of objects, without compiled code. */
  readonly heap: number;
  /** Bytes outside the heap that belong to objects in it, such as buffers. */
  readonly external: number;
  /** Bytes of the whole process. */
  readonly rss: number;
  /** Milliseconds of CPU time since the process started, without this garbage collection. */
  readonly cpuMs: number;
  /** Open connections, both from clients and to the provider. */
  readonly connections: number;
}

/** A server in its own process, connected to the scripted provider. */
export interface ServerProcess extends AsyncDisposable {
  /** Without a trailing slash. The API is below `/v1`. */
  readonly url: string;
  /** The number of responses that the server resumed when it started. */
  readonly recovered: number;
  /** Resolves when a call of the tool `hold` with this tag is waiting. */
  readonly held: (tag: string) => Promise<void>;
  /** Lets a waiting or future call of `hold` with this tag return. */
  readonly release: (tag: string) => void;
  /** Bytes of objects after a forced garbage collection, without compiled code. */
  readonly heap: () => Promise<number>;
  readonly usage: () => Promise<ResourceUsage>;
  /** Shuts down gracefully; resolves when the process has exited. */
  readonly close: (graceMs?: number) => Promise<void>;
  /** Sends SIGKILL. */
  readonly kill: () => Promise<void>;
}

/**
 * Starts the real server. `modelOf(script, form)` names the model that answers with a script of the provider.
 *
 *     await using provider = await startProvider();
 *     await using server = await startServer(provider);
 *     const script = await provider.script([{ text: 'Hello' }]);
 *     await fetch(`${server.url}/v1/responses`, { body: JSON.stringify({ model: modelOf(script), input: 'Hi' }), … });
 */
export async function startServer(
  provider: Pick<Provider, 'url'>,
  settings: ServerSettings = {},
): Promise<ServerProcess> {
  const store = await testStoreName(settings.store ?? ':memory:');
  const parameters: StartParameters = { provider: provider.url, store, settings };
  const child = fork(MAIN, [], {
    execArgv: ['--conditions=treadle-source', '--expose-gc', '--disable-warning=ExperimentalWarning'],
    env: { ...process.env, TREADLE_TEST_SERVER: JSON.stringify(parameters) },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const listening = Promise.withResolvers<Extract<ServerMessage, { type: 'listening' }>>();
  const heaps: ((bytes: number) => void)[] = [];
  const usages: ((usage: ResourceUsage) => void)[] = [];
  const heldTags = new Map<string, PromiseWithResolvers<void>>();
  const heldTag = (tag: string): PromiseWithResolvers<void> => {
    const known = heldTags.get(tag) ?? Promise.withResolvers<void>();
    heldTags.set(tag, known);
    return known;
  };
  child.on('message', (message: ServerMessage) => {
    if (message.type === 'listening') listening.resolve(message);
    else if (message.type === 'held') heldTag(message.tag).resolve();
    else if (message.type === 'heap') heaps.shift()?.(message.bytes);
    else usages.shift()?.(message);
  });
  child.on('exit', (code) => listening.reject(new Error(`The server process exited with ${code}.`)));
  const { url, recovered } = await listening.promise;
  const send = (order: ServerOrder): void => void child.send(order);
  const close = async (graceMs?: number): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    send({ type: 'close', ...(graceMs !== undefined && { graceMs }) });
    await once(child, 'exit');
  };
  return {
    url,
    recovered,
    held: (tag) => heldTag(tag).promise,
    release: (tag) => send({ type: 'release', tag }),
    heap: () =>
      new Promise((resolve) => {
        heaps.push(resolve);
        send({ type: 'heap' });
      }),
    usage: () =>
      new Promise((resolve) => {
        usages.push(resolve);
        send({ type: 'usage' });
      }),
    close,
    async kill() {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
    [Symbol.asyncDispose]: () => close(),
  };
}

/** The name of the model that answers with a script of the provider. */
export function modelOf({ name }: Script, form: FormName = 'openai-chat', mode: 'stream' | 'whole' = 'stream'): string {
  return mode === 'stream' ? `${name}/${form}` : `${name}/${form}/whole`;
}
