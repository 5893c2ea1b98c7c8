import { PassThrough, Readable } from 'node:stream';
import type { Command } from '../command-line/command.ts';
import { parseArguments } from '../command-line/arguments.ts';
import { hasColours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';

/** What a command of Treadle prints, run from a chat: it gets no keys, and nobody is asked. */
export async function commandOutput(
  command: Command,
  args: readonly string[],
  { io, signal }: { readonly io: Io; readonly signal?: AbortSignal },
): Promise<string> {
  const parsed = parseArguments(command, args);
  if (parsed === 'help') return `See: treadle ${command.name} --help`;
  let text = '';
  const written = (): Io['stdout'] => {
    const stream = new PassThrough().setEncoding('utf8');
    stream.on('data', (piece: string) => {
      text += piece;
    });
    return Object.assign(stream, { isTTY: hasColours(io.stdout, io.env), columns: io.stdout.columns ?? 80 });
  };
  await command.run(parsed, {
    ...io,
    stdin: Readable.from([]) as Io['stdin'],
    stdout: written(),
    stderr: written(),
    onInterrupt(stop) {
      signal?.addEventListener('abort', stop);
      return () => signal?.removeEventListener('abort', stop);
    },
  });
  // The streams pass on what was written to them in the next turns of the event loop.
  await new Promise((resolve) => void setImmediate(resolve));
  return text.trimEnd();
}
