import { connect, type Socket } from 'node:net';

/** A response as it was received. */
export interface RawAnswer {
  readonly status: number;
  /** The names are in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A connection whose bytes the test writes itself. */
export interface RawConnection extends AsyncDisposable {
  readonly socket: Socket;
  write(text: string | Uint8Array): void;
  /** The next complete response; rejects if the connection ends before. */
  answer(): Promise<RawAnswer>;
  /** Resolves when the received data contains `text`. */
  until(text: string): Promise<string>;
  /** Resolves to all received data when the server has closed the connection. */
  closed(): Promise<string>;
}

export async function rawConnection(port: number, host = '127.0.0.1'): Promise<RawConnection> {
  const socket = connect({ port, host });
  await new Promise<void>((resolve, reject) => void socket.once('connect', resolve).once('error', reject));
  socket.on('error', () => undefined);
  let unread = '';
  let all = '';
  let ended = false;
  let changed = Promise.withResolvers<void>();
  const change = (): void => {
    changed.resolve();
    changed = Promise.withResolvers();
  };
  socket.on('data', (chunk) => {
    unread += chunk.toString('latin1');
    all += chunk.toString('latin1');
    change();
  });
  socket.on('close', () => {
    ended = true;
    change();
  });
  const until = async <T>(look: () => T | undefined): Promise<T> => {
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      if (ended) throw new Error(`the connection ended after: ${JSON.stringify(all)}`);
      await changed.promise;
    }
  };
  return {
    socket,
    write: (text) => void socket.write(text),
    answer: () =>
      until(() => {
        const answer = parsed(unread);
        if (answer) unread = answer.rest;
        return answer?.answer;
      }),
    until: (text) => until(() => (all.includes(text) ? all : undefined)),
    closed: async () => {
      while (!ended) await changed.promise;
      return all;
    },
    async [Symbol.asyncDispose]() {
      socket.destroy();
      while (!ended) await changed.promise;
    },
  };
}

function parsed(text: string): { readonly answer: RawAnswer; readonly rest: string } | undefined {
  const end = text.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const [first = '', ...lines] = text.slice(0, end).split('\r\n');
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const length = Number(headers['content-length'] ?? 0);
  if (text.length < end + 4 + length) return undefined;
  const body = text.slice(end + 4, end + 4 + length);
  return { answer: { status: Number(first.split(' ')[1]), headers, body }, rest: text.slice(end + 4 + length) };
}
