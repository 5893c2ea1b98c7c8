import { PassThrough, Readable } from 'node:stream';
import { main, type Io } from 'treadle';
import { afterEach, beforeEach } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from '../command/scripted-openai.ts';
import { stopLeftovers, treadle, type Ended, type TreadleProcess } from '../command/treadle-process.ts';

/** A running `treadle serve` on a free port. */
export interface ServeCommand {
  readonly url: string;
  get(path: string, headers?: Readonly<Record<string, string>>): Promise<HttpResult>;
  /** Sends a request to `/v1/responses`. */
  respond(body: object, headers?: Readonly<Record<string, string>>): Promise<HttpResult>;
  /** Sends SIGHUP; resolves when the log has a line with this text. */
  reload?(logged: string): Promise<void>;
  /** Resolves when the log has a line with this text. */
  logged?(text: string): Promise<void>;
  /** `logged` and `reload` look only at lines from now on. */
  forgetLog?(): void;
  /** Sends the signal; resolves when the command has ended. */
  stop(signal?: NodeJS.Signals): Promise<Ended>;
}

export interface ServeProcess extends ServeCommand {
  readonly process: TreadleProcess;
}

export interface HttpResult {
  readonly status: number;
  readonly text: string;
  /** The parsed JSON; an empty object if the response is not JSON. */
  readonly body: ResponseBody;
}

/** The fields of any response body that tests use. */
export interface ResponseBody {
  readonly id: string;
  readonly status: string;
  readonly output: readonly { readonly type: string; readonly output?: string }[];
  readonly pending_call_ids: readonly string[];
  readonly data: readonly { readonly id: string }[];
  readonly error: { readonly message: string; readonly code: string };
}

/** A folder with a configuration, and a scripted model; both are new for each test. */
export interface ServeFixture {
  readonly play: Playground;
  /** The model of the last call of `script` or `configure`. */
  readonly provider: ScriptedOpenAi;
  script(...steps: readonly Step[]): Promise<ScriptedOpenAi>;
  /** Writes a treadle.toml with these lines and a model `main` that replies with the steps. */
  configure(lines: string, ...steps: readonly Step[]): Promise<void>;
  /** Runs `treadle serve` in this process, which starts much faster than a process. */
  serve(...args: readonly string[]): Promise<ServeCommand>;
  /** Runs `treadle serve` in its own process: for signals, exit codes and crashes. */
  serveProcess(...args: readonly string[]): Promise<ServeProcess>;
}

export function useServeFixture(): ServeFixture {
  let play: Playground;
  let provider: ScriptedOpenAi | undefined;
  const inProcess = new Set<ServeCommand>();
  beforeEach(async () => {
    play = await playground();
  });
  afterEach(async () => {
    stopLeftovers();
    for (const command of inProcess) await command.stop();
    inProcess.clear();
    await provider?.close();
    provider = undefined;
    await play.remove();
  });
  const fixture: ServeFixture = {
    get play() {
      return play;
    },
    get provider() {
      return provider!;
    },
    async script(...steps) {
      provider = await scriptedOpenAi(steps);
      return provider;
    },
    async configure(lines, ...steps) {
      const { baseURL } = await fixture.script(...steps);
      await play.write('treadle.toml', `[models.main]\nmodel = "m-1"\nbase_url = "${baseURL}"\n${lines}\n`);
    },
    async serve(...args) {
      const command = await startInProcess(play.folder, args);
      inProcess.add(command);
      return command;
    },
    async serveProcess(...args) {
      const process = treadle(['serve', '--port', '0', ...args], { cwd: play.folder, stdin: '' });
      await process.shows('\n');
      const stop = (signal: NodeJS.Signals = 'SIGTERM'): Promise<Ended> => {
        process.child.kill(signal);
        return process.ended;
      };
      return { process, ...httpClient(process.seen.stdout), stop };
    },
  };
  return fixture;
}

async function startInProcess(cwd: string, args: readonly string[]): Promise<ServeCommand> {
  const { io, written, waitFor, forgetLog, interrupt, terminate, reload } = testIo({ cwd, isTTY: false });
  const ended = main(['serve', '--port', '0', ...args], io).then((code): Ended => ({ code, signal: null, ...written }));
  await Promise.race([
    waitFor('\n', 'stdout'),
    ended.then((end) => {
      throw new Error(`treadle serve ended without an address: ${JSON.stringify(end)}`);
    }),
  ]);
  return {
    ...httpClient(written.stdout),
    logged: (text) => waitFor(text, 'stderr'),
    forgetLog,
    reload(logged) {
      reload();
      return waitFor(logged, 'stderr');
    },
    stop(signal = 'SIGTERM') {
      if (signal === 'SIGINT') interrupt();
      else terminate();
      return ended;
    },
  };
}

/** The environment of a command that runs in this process. */
export interface TestIo {
  readonly io: Io;
  /** The output so far. */
  readonly written: { readonly stdout: string; readonly stderr: string };
  /** Resolves when the text was written. */
  waitFor(text: string, where: 'stdout' | 'stderr'): Promise<void>;
  /** `waitFor` looks only at what is written to `stderr` from now on. */
  forgetLog(): void;
  /** Simulates SIGINT. */
  interrupt(): void;
  /** Simulates SIGTERM. */
  terminate(): void;
  /** Simulates SIGHUP. */
  reload(): void;
}

export function testIo({ cwd, isTTY }: { readonly cwd: string; readonly isTTY: boolean }): TestIo {
  const written = { stdout: '', stderr: '' };
  const watchers = new Set<() => void>();
  const seen = { stdout: 0, stderr: 0 };
  const listeners = { interrupt: (): void => {}, terminate: (): void => {}, reload: (): void => {} };
  /** Records text in `write`, so that all of it is in `written` when the command has ended. */
  const output = (name: keyof typeof written): PassThrough & { readonly isTTY: boolean } => {
    const stream = new PassThrough();
    stream.write = ((text: string | Uint8Array) => {
      written[name] += text.toString();
      for (const watcher of watchers) watcher();
      return true;
    }) as typeof stream.write;
    return Object.assign(stream, { isTTY });
  };
  return {
    io: {
      stdin: Readable.from([]),
      stdout: output('stdout'),
      stderr: output('stderr'),
      env: {},
      cwd,
      onInterrupt(listener) {
        listeners.interrupt = listener;
        return () => {};
      },
      onTerminate(listener) {
        listeners.terminate = listener;
        return () => {};
      },
      onReload(listener) {
        listeners.reload = listener;
        return () => {};
      },
      outliveReaders: () => {},
      quit: () => {},
    },
    written,
    waitFor: (text, where) =>
      new Promise((resolve) => {
        const watcher = (): void => {
          if (written[where].includes(text, seen[where])) resolve();
        };
        watchers.add(watcher);
        watcher();
      }),
    forgetLog: () => void (seen.stderr = written.stderr.length),
    interrupt: () => listeners.interrupt(),
    terminate: () => listeners.terminate(),
    reload: () => listeners.reload(),
  };
}

/** `stdout` must contain the address line and nothing else. */
function httpClient(stdout: string): Pick<ServeCommand, 'url' | 'get' | 'respond'> {
  const url = /^Treadle listens on (http:\/\/\S+)\n$/.exec(stdout)?.[1];
  if (url === undefined) throw new Error(`The command printed ${JSON.stringify(stdout)} instead of its address.`);
  return {
    url,
    get: async (path, headers = {}) => readResult(await fetch(url + path, { headers })),
    respond: async (body, headers = {}) =>
      readResult(
        await fetch(`${url}/v1/responses`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body: JSON.stringify(body),
        }),
      ),
  };
}

async function readResult(answer: Response): Promise<HttpResult> {
  const text = await answer.text();
  const isJson = answer.headers.get('content-type')?.includes('json');
  return { status: answer.status, text, body: (isJson ? JSON.parse(text) : {}) as ResponseBody };
}

/** The log of the command, one JSON object per line. */
export function logLines(stderr: string): readonly { readonly level: string; readonly msg: string }[] {
  return stderr
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}
