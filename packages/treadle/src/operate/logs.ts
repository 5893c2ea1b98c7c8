import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import type { LogFilter, WireLogs } from '@treadle/server';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { oneLine } from '../terminal/printable.ts';
import { timestampText } from '../terminal/quantities.ts';
import { catchStopSignal } from '../terminal/signals.ts';
import { keptLines } from './log-file.ts';
import {
  connectToServer,
  SERVER_FLAGS,
  SERVER_NOTE,
  ServerUnreachable,
  type ServerConnection,
} from './server-connection.ts';

/** Copies of the server's list, because loading the server takes time. */
const FILTERS: readonly LogFilter[] = ['tool', 'run', 'request', 'problem'];

type LogRecord = WireLogs['data'][number];

export const logsCommand: Command = defineCommand({
  name: 'logs',
  summary: SUMMARIES.logs,
  flags: {
    filter: { type: 'choice', choices: FILTERS, help: 'Only calls of tools, runs, requests, or warnings and errors' },
    follow: { type: 'switch', short: 'f', help: 'Wait for further lines, until Ctrl-C' },
    lines: { type: 'count', value: 'N', min: 1, max: 1_000, help: 'The newest N lines; default: 100' },
    ...SERVER_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'A server keeps its log if log_file in [server] of treadle.toml names a file. Without --url, the file is read. The key of a\n' +
      'server needs the scope logs:read.',
    SERVER_NOTE,
  ],
  examples: [
    'treadle logs --filter=tool',
    'treadle logs --follow',
    `treadle logs --json | jq 'select(.level == "error")'`,
  ],
  async run({ values }, io) {
    const { loaded, store, folder } = await resolveContext(values, io);
    const { log_file: named } = loaded.config.server ?? {};
    const file = named === undefined ? undefined : resolve(folder, named);
    const isRemote = values.url !== undefined || io.env['TREADLE_URL'] !== undefined || file === undefined;
    const server = isRemote ? await connectToServer(values, store, io) : undefined;
    if (!server && file === undefined) {
      throw new CommandError('No log is kept. Set log_file in [server] of treadle.toml, or name a server with --url.');
    }
    const limit = values.lines ?? 100;
    const source = server ? serverLog(server, values.filter, io) : await fileLog(file!, values.filter);
    const colours = coloursFor(io.stdout, io.env);
    const print = (records: readonly LogRecord[]): void => {
      const texts = records.map((one) => (values.json ? JSON.stringify(one) : lineOf(one, colours, io)));
      if (texts.length > 0) io.stdout.write(texts.map((text) => `${text}\n`).join(''));
    };
    print((await source.next()).slice(-limit));
    if (!values.follow) return EXIT.completed;
    const stop = catchStopSignal(io);
    const stopped = new AbortController();
    const received = stop.received.then(() => stopped.abort());
    try {
      while (!stopped.signal.aborted) {
        await setTimeout(POLL_MS, undefined, { signal: stopped.signal }).catch(() => {});
        print(await source.next());
      }
      await received;
    } finally {
      stop.release();
    }
    return EXIT.completed;
  },
});

interface LogSource {
  /** The lines since the last call. */
  next(): Promise<readonly LogRecord[]>;
}

const POLL_MS = 500;

function serverLog(server: ServerConnection, filter: LogFilter | undefined, io: Io): LogSource {
  let last = 0;
  /** The last line that was printed, as JSON. */
  let printed: string | undefined;
  let isAway = false;

  async function read(): Promise<readonly LogRecord[]> {
    const query = `limit=1000${filter === undefined ? '' : `&filter=${filter}`}`;
    let { data, last: newest } = await server.get<WireLogs>(`/v1/logs?${query}&after=${last}`);
    if (newest < last) {
      // It was started again, and numbers the lines that it has kept from 1 on.
      ({ data, last: newest } = await server.get<WireLogs>(`/v1/logs?${query}`));
      data = data.slice(data.findLastIndex((one) => JSON.stringify(one) === printed) + 1);
    }
    last = newest;
    if (data.length > 0) printed = JSON.stringify(data.at(-1));
    isAway = false;
    return data;
  }

  return {
    async next() {
      try {
        return await read();
      } catch (error) {
        // One that has answered before may be started again.
        if (last === 0 || !(error instanceof ServerUnreachable)) throw error;
        if (!isAway)
          io.stderr.write(`treadle: The server ${server.url} does not answer. Its lines follow when it does.\n`);
        isAway = true;
        return [];
      }
    },
  };
}

async function fileLog(file: string, filter: LogFilter | undefined): Promise<LogSource> {
  const { logRecord } = await import('@treadle/server');
  let read = '';
  /** The last line that was printed. If the file was renamed since, it is in the one before. */
  let printed: string | undefined;
  return {
    async next() {
      const { size = 0, mtimeMs = 0 } = statSync(file, { throwIfNoEntry: false }) ?? {};
      const state = `${size} ${mtimeMs}`;
      if (state === read) return [];
      read = state;
      const lines = keptLines(file);
      const from = printed === undefined ? 0 : lines.lastIndexOf(printed) + 1;
      printed = lines.at(-1) ?? printed;
      return lines
        .slice(from)
        .map((line) => logRecord(line, filter))
        .filter((one) => one !== undefined);
    },
  };
}

/** Shown first, or the same as `time`. */
const HIDDEN: ReadonlySet<string> = new Set(['level', 'time', 'msg', 'timestamp']);

/** A line for people. */
function lineOf(record: LogRecord, colours: Colours, { stdout }: Io): string {
  const { level, time, msg } = record;
  const facts = Object.entries(record)
    .filter(([name]) => !HIDDEN.has(name))
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  const at = Date.parse(String(time));
  const when = Number.isNaN(at) ? String(time) : timestampText(at);
  const text = [when, String(level), String(msg ?? ''), ...facts].join(' ');
  const line = oneLine(text, stdout.isTTY ? (stdout.columns ?? 120) : 2_000);
  return level === 'error' || level === 'fatal' ? colours.red(line) : line;
}
