import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Order, Report } from './main.ts';
import type { FormName, Seen, Step } from './script.ts';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

/** A scripted conversation with the provider. */
export interface Script {
  readonly name: string;
  /** The base URL for a model of that form. */
  readonly baseURL: (form: FormName) => string;
  /** The requests so far, in order. */
  readonly requests: () => Promise<readonly Seen[]>;
  /** How often the client has read a repeated text so far. */
  readonly said: () => Promise<number>;
  /** Adds steps after the remaining ones. */
  readonly add: (...steps: readonly Step[]) => Promise<void>;
}

export interface Provider extends AsyncDisposable {
  /** Request n is answered by step n, in any form. A rejected request takes no step. */
  readonly script: (steps: readonly Step[], options?: { readonly strict?: boolean }) => Promise<Script>;
  /**
   * Resolves when every request has been answered or aborted, and at most `connections` are open, which a client may keep
   * for its next request; default: any number.
   */
  readonly quiet: (connections?: number) => Promise<void>;
  readonly pid: number;
  /** The URL without a trailing slash. */
  readonly url: string;
}

/**
 * Starts a provider of OpenAI's two APIs, Anthropic's, Google's and Ollama's in a process of its own. It rejects what the real ones
 * reject (`rules/`), and fails as the script says (`script.ts`). It ends with the process that started it.
 *
 *     await using provider = await startProvider();
 *     const script = await provider.script([{ text: 'Hello' }]);
 *     const model = openaiChat({ model: 'm', apiKey: 'k', baseURL: script.baseURL('openai-chat') });
 */
export async function startProvider(): Promise<Provider> {
  const child = fork(MAIN, [], {
    execArgv: ['--conditions=treadle-source'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const waiting = new Map<number, (result: unknown) => void>();
  const { promise: listening, resolve, reject } = Promise.withResolvers<number>();
  child.on('message', (report: Report) => {
    if (report.type === 'listening') return resolve(report.port);
    waiting.get(report.number)?.(report.result);
    waiting.delete(report.number);
  });
  child.on('exit', (code) => reject(new Error(`The process of the provider ended with code ${code}.`)));
  const port = await listening;

  let orders = 0;
  const sendOrder = (order: Unnumbered): Promise<unknown> =>
    new Promise((answered) => {
      const number = orders++;
      waiting.set(number, answered);
      child.send({ ...order, number } as Order);
    });

  let scripts = 0;
  return {
    pid: child.pid!,
    url: `http://127.0.0.1:${port}`,
    async script(steps, { strict = true } = {}) {
      const name = `s${scripts++}`;
      const add = async (more: readonly Step[]): Promise<void> =>
        void (await sendOrder({ type: 'script', name, steps: more, isStrict: strict }));
      await add(steps);
      return {
        name,
        baseURL: (form) => `http://127.0.0.1:${port}/${name}/${form}${VERSIONS[form] ?? '/v1'}`,
        requests: async () => (await sendOrder({ type: 'seen', name })) as readonly Seen[],
        said: async () => (await sendOrder({ type: 'said', name })) as number,
        add: (...more) => add(more),
      };
    },
    quiet: async (connections = Number.MAX_SAFE_INTEGER) => void (await sendOrder({ type: 'quiet', connections })),
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null) return;
      child.disconnect();
      await once(child, 'exit');
    },
  };
}

/** What follows the host in the base URL of a form; the others have `/v1`. */
const VERSIONS: Readonly<Partial<Record<FormName, string>>> = { google: '/v1beta', ollama: '' };

type Unnumbered = Order extends infer One ? (One extends Order ? Omit<One, 'number'> : never) : never;
