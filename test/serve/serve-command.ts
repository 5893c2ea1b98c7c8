import { treadle, type Ended, type TreadleProcess } from '../command/treadle-process.ts';

/** `treadle serve` in a process of its own, on a port that is free. */
export interface Serving {
  readonly process: TreadleProcess;
  readonly url: string;
  get(path: string, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** A response that is not streamed, unless the body says so. */
  respond(body: object, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** Sends the signal and waits for its end. */
  stop(signal?: NodeJS.Signals): Promise<Ended>;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  /** Its JSON. */
  readonly body: Body;
}

/** What any answer may have; who asks knows what it has. */
export interface Body {
  readonly id: string;
  readonly status: string;
  readonly output: readonly { readonly type: string; readonly output?: string }[];
  readonly pending_call_ids: readonly string[];
  readonly data: readonly { readonly id: string }[];
  readonly error: { readonly message: string; readonly code: string };
}

interface Place {
  readonly cwd: string;
  readonly env?: Record<string, string>;
}

export async function serving(place: Place, ...args: readonly string[]): Promise<Serving> {
  const process = treadle(['serve', '--port', '0', ...args], { ...place, stdin: '' });
  await process.shows('\n');
  const { stdout } = process.seen;
  const url = /^Treadle listens on (http:\/\/\S+)\n$/.exec(stdout)?.[1];
  if (url === undefined) throw new Error(`It printed ${JSON.stringify(stdout)} instead of its address.`);
  return {
    process,
    url,
    get: (path, headers = {}) => answered(fetch(url + path, { headers })),
    respond: (body, headers = {}) =>
      answered(
        fetch(`${url}/v1/responses`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body: JSON.stringify(body),
        }),
      ),
    stop(signal = 'SIGTERM') {
      process.child.kill(signal);
      return process.ended;
    },
  };
}

async function answered(asked: Promise<Response>): Promise<Answer> {
  const answer = await asked;
  const text = await answer.text();
  const isJson = answer.headers.get('content-type')?.includes('json');
  return { status: answer.status, text, body: (isJson ? JSON.parse(text) : {}) as Body };
}

/** What it logged, each line as JSON. */
export function logLines(stderr: string): readonly { readonly level: string; readonly msg: string }[] {
  return stderr
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

/** Asks again until it is so. */
export async function until<T>(ask: () => Promise<T>, isSo: (answer: T) => boolean): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (isSo(answer)) return answer;
  }
}
