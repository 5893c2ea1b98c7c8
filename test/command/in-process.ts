import { PassThrough, Readable } from 'node:stream';
import { main, type Io } from 'treadle';

export interface Printed {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command in this process, with pipes instead of a terminal. `input`: standard input, or other parts of its `Io`. */
export async function command(
  args: readonly string[],
  cwd: string,
  input: string | Partial<Io> = '',
): Promise<Printed> {
  const written = { stdout: '', stderr: '' };
  const stream = (name: keyof typeof written): PassThrough =>
    new PassThrough().setEncoding('utf8').on('data', (text: string) => {
      written[name] += text;
    });
  const [stdout, stderr] = [stream('stdout'), stream('stderr')];
  const io: Io = {
    stdin: Readable.from(typeof input === 'string' && input !== '' ? [Buffer.from(input)] : []),
    stdout,
    stderr,
    env: {},
    cwd,
    onInterrupt: () => () => {},
    onTerminate: () => () => {},
    outliveReaders: () => {},
    quit: () => {},
    ...(typeof input === 'object' && input),
  };
  const code = await main(args, io);
  await Promise.all([stdout, stderr].map((one) => new Promise((resolve) => one.end().on('end', resolve))));
  return { code, stdout: written.stdout, stderr: withoutSandboxLine(written.stderr) };
}

/** Without the line that says how commands are confined, which depends on the machine. */
export function withoutSandboxLine(text: string): string {
  return text.replace(/^(Sandbox: |No sandbox)[^\n]*\n/m, '');
}
