import { treadle, type TreadleProcess } from '../../command/treadle-process.ts';

/** A server that is started again whenever it has ended, as a supervisor does. */
export interface ChaosServer {
  readonly name: string;
  /** Undefined while it starts. */
  readonly port: () => number | undefined;
  readonly state: () => 'starting' | 'running' | 'frozen';
  /** Resolves when it listens again. */
  readonly end: (signal: 'SIGKILL' | 'SIGTERM', pauseMs: number) => Promise<void>;
  readonly freeze: (ms: number) => Promise<void>;
  /** It is not started again. */
  readonly stop: () => Promise<void>;
}

export interface ServerEnds {
  /** Ends that nobody asked for, with what the process has written. */
  readonly unexpected: string[];
  /** Starts that failed, because the database did not work. */
  failedStarts: number;
  /** How long starts took. */
  readonly startMs: number[];
}

const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export async function startChaosServer(name: string, cwd: string, ends: ServerEnds): Promise<ChaosServer> {
  let current: TreadleProcess | undefined;
  let port: number | undefined;
  let isFrozen = false;
  let isStopped = false;
  /** The process that was told to end. */
  let ended: TreadleProcess | undefined;

  async function start(): Promise<void> {
    while (!isStopped) {
      const from = performance.now();
      const started = treadle(['serve', '--port', '0'], { cwd, stdin: '' });
      current = started;
      void started.ended.then(({ code, signal, stderr }) => {
        if (current === started) port = undefined;
        if (ended === started || isStopped) return;
        if (/cannot be reached/.test(stderr)) ends.failedStarts += 1;
        else ends.unexpected.push(`${name} ended with ${code ?? signal}: ${stderr.slice(-2_000)}`);
      });
      const isUp = await started.shows('\n').then(
        () => true,
        () => false,
      );
      if (port === undefined && !isUp && ends.unexpected.length > 20) throw new Error(ends.unexpected.join('\n'));
      if (isUp) {
        ends.startMs.push(performance.now() - from);
        port = Number(/:(\d+)\n/.exec(started.seen.stdout)![1]);
        return;
      }
      await delay(100);
    }
  }

  await start();
  if (ends.unexpected.length > 0) throw new Error(ends.unexpected.join('\n'));
  return {
    name,
    port: () => port,
    state: () => (port === undefined ? 'starting' : isFrozen ? 'frozen' : 'running'),
    async end(signal, pauseMs) {
      const process = current!;
      ended = process;
      port = undefined;
      process.child.kill(signal);
      await process.ended;
      await delay(pauseMs);
      await start();
    },
    async freeze(ms) {
      isFrozen = true;
      const { child } = current!;
      child.kill('SIGSTOP');
      await delay(ms);
      child.kill('SIGCONT');
      isFrozen = false;
    },
    async stop() {
      isStopped = true;
      current!.child.kill('SIGCONT');
      current!.child.kill('SIGTERM');
      await current!.ended;
    },
  };
}
