import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { messageOf } from '@treadle/core';
import { CommandError, type Values } from '../command-line/command.ts';
import type { Holder } from '@treadle/store';
import { loadStorePackage, type StoreLocation } from '../config/store.ts';
import type { Io } from '../terminal/io.ts';

/** How a command reaches a server. */
export const SERVER_FLAGS = {
  url: {
    type: 'text',
    value: 'URL',
    help: 'A running server; default: TREADLE_URL, or the server of this machine that uses the store',
  },
  json: { type: 'switch', help: 'Print JSON' },
} as const;

export type ServerValues = Values<typeof SERVER_FLAGS>;

export const SERVER_NOTE: string =
  'A server is asked if there is one: that of --url or of the environment variable TREADLE_URL, or one on this machine with the\n' +
  'same store. TREADLE_KEY has its key. Otherwise the store is read.';

/** What a server writes beside its store, so that commands on this machine find it. */
interface ServerFile {
  readonly url: string;
  readonly holder: Holder;
}

/** `treadle.db.server.3210.json`: each server has its own, so that one that ends does not hide another one. */
function serverFile(file: string, url: string): string {
  return `${file}.server.${new URL(url).port || '80'}.json`;
}

/** The files of all servers that use a store, the newest first. */
function serverFiles(store: StoreLocation): readonly string[] {
  if (store.type === 'memory') return [];
  const folder = dirname(store.file);
  const begin = `${basename(store.file)}.server.`;
  try {
    return readdirSync(folder)
      .filter((name) => name.startsWith(begin) && /^\d+\.json$/.test(name.slice(begin.length)))
      .map((name) => join(folder, name))
      .map((file) => ({ file, at: statSync(file).mtimeMs }))
      .toSorted((a, b) => b.at - a.at)
      .map(({ file }) => file);
  } catch {
    return [];
  }
}

/** Tells commands on this machine where the server is, until the returned function is called. */
export async function announceServer(store: StoreLocation, url: string): Promise<() => void> {
  if (store.type === 'memory') return () => {};
  const { thisProcess } = await loadStorePackage();
  const file = serverFile(store.file, url);
  const text = JSON.stringify({ url, holder: thisProcess() } satisfies ServerFile);
  try {
    for (const other of serverFiles(store)) if ((await serverIn(other)) === undefined) rmSync(other, { force: true });
    writeFileSync(file, `${text}\n`, { mode: 0o600 });
  } catch {
    // Commands then need --url.
    return () => {};
  }
  return () => {
    try {
      // Another server may have written it since.
      if (readFileSync(file, 'utf8').trim() === text) rmSync(file);
    } catch {}
  };
}

/** The server of this machine that uses a store. Undefined: none that lives has told where it is. */
async function announcedServer(store: StoreLocation): Promise<string | undefined> {
  for (const file of serverFiles(store)) {
    const url = await serverIn(file);
    if (url !== undefined) return url;
  }
  return undefined;
}

/**
 * Undefined: it does not live on this machine. The key is sent there, and a process that is gone may have left its pid and the
 * port to other programs.
 */
async function serverIn(file: string): Promise<string | undefined> {
  const { holderState } = await loadStorePackage();
  try {
    const { url, holder } = JSON.parse(readFileSync(file, 'utf8')) as ServerFile;
    const state = holderState(holder);
    const lives = state === 'alive' || state === 'unknown';
    return lives && new URL(url).protocol === 'http:' ? url : undefined;
  } catch {
    return undefined;
  }
}

/** The server does not answer. It may later. */
export class ServerUnreachable extends CommandError {}

export interface ServerConnection {
  readonly url: string;
  /** Throws a `CommandError` if the server does not answer (`ServerUnreachable`), or with an error. So do the others. */
  get<T>(path: string): Promise<T>;
  send<T>(method: string, path: string, body?: object): Promise<T>;
  text(path: string): Promise<string>;
  /** The data of server-sent events, parsed as JSON. */
  events(request: ServerRequest): AsyncIterable<unknown>;
}

interface ServerRequest {
  readonly method: string;
  readonly path: string;
  readonly body?: object;
  /** Ends the events. */
  readonly signal?: AbortSignal;
}

/** Undefined: there is no server, so that the store has to be read. */
export async function connectToServer(
  { url: given }: ServerValues,
  store: StoreLocation,
  { env }: Pick<Io, 'env'>,
): Promise<ServerConnection | undefined> {
  const named = given ?? env['TREADLE_URL'];
  const url = named ?? (await announcedServer(store));
  if (url === undefined) return undefined;
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new CommandError(
      `${given === undefined ? 'TREADLE_URL' : '--url'} must be a URL such as http://127.0.0.1:3210.`,
    );
  }
  const base = url.replace(/\/(v1\/?)?$/, '');
  const key = env['TREADLE_KEY'];
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const request = async ({ method, path, body }: ServerRequest, signal?: AbortSignal): Promise<Response> => {
    let answer: Response;
    try {
      answer = await fetch(base + path, {
        method,
        headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
        ...(body && { body: JSON.stringify(body) }),
        ...(signal && { signal }),
        redirect: 'error',
      });
    } catch (error) {
      const why = messageOf((error as Error).cause ?? error);
      throw new ServerUnreachable(`The server ${base} cannot be reached: ${why}. Name another one with --url.`);
    }
    if (answer.ok) return answer;
    const failed = (await answer.json().catch(() => undefined)) as { readonly error?: { readonly message?: string } };
    throw refused(answer, failed?.error?.message);
  };
  const refused = ({ status }: Response, said?: string): CommandError => {
    const hint = status === 401 || status === 403 ? ' Set the environment variable TREADLE_KEY to such a key.' : '';
    return new CommandError(`The server ${base}: ${said ?? `it answered with the status ${status}.`}${hint}`);
  };
  const json = async <T>(given: ServerRequest): Promise<T> => {
    const answer = await request(given, AbortSignal.timeout(ANSWER_MS));
    const body = (await answer.json().catch(() => undefined)) as T | undefined;
    if (body === undefined) throw refused(answer);
    return body;
  };
  return {
    url: base,
    get: (path) => json({ method: 'GET', path }),
    send: (method, path, body) => json({ method, path, ...(body && { body }) }),
    text: async (path) => (await request({ method: 'GET', path }, AbortSignal.timeout(ANSWER_MS))).text(),
    async *events(given) {
      const { body } = await request(given, given.signal);
      let rest = '';
      for await (const piece of body!.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + piece).split('\n');
        rest = lines.pop()!;
        for (const line of lines) if (line.startsWith('data: ')) yield JSON.parse(line.slice('data: '.length));
      }
    },
  };
}

const ANSWER_MS = 30_000;
