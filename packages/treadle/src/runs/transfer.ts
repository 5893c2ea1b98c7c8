import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { messageOf, replay, type JournalEntry, type RunStore } from '@treadle/core';
import { CommandError, defineCommand, EXIT, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { openStore, rejectMemoryStore } from '../config/store.ts';
import { readStdin } from '../terminal/io.ts';
import { plural } from '../terminal/quantities.ts';
import { childrenOf, readRun, runsCommand, shortId } from './store-access.ts';

/** An exported run. */
interface RunFile {
  readonly runId: string;
  readonly entries: readonly JournalEntry[];
  readonly blobs: readonly { readonly id: string; readonly text: string }[];
}

export const exportCommand: Command = runsCommand('export ID [FILE]', {
  summary: 'Write a run with its long results as JSON lines to a file or to standard output',
  details:
    'The file contains the whole conversation. Child runs and forks are not included; export them separately.\n\n' +
    'Example:\n  treadle runs export 1a2b | treadle runs import - --store sqlite:/elsewhere/runs.db',
  async run({ store, args: [prefix, file = '-'], io, note }) {
    const { summary, entries } = await readRun(store, prefix!);
    const { runId } = summary;
    const children = (await childrenOf(store, runId)).map((child) => child.runId).join(', ');
    if (children !== '') note(`The child runs ${children} are not included. The run needs them to be resumed.`);
    const ids = await store.blobs.list(runId);
    const contents = await Promise.all(ids.map((id) => store.blobs.read(runId, id, 0, Infinity)));
    const blobs = ids.map((id, index) => ({ id, text: contents[index]?.text ?? '' }));
    const text = runFileText({ runId, entries, blobs });
    if (file === '-') return void io.stdout.write(text);
    // Only this user can read the file, and an existing file is not overwritten.
    await orFileError(file, 'written', writeFile(resolve(io.cwd, file), text, { flag: 'wx', mode: 0o600 }));
    const results = blobs.length === 0 ? '' : ` and ${plural(blobs.length, 'long result')}`;
    note(`Wrote ${plural(entries.length, 'entry', 'entries')}${results} of ${shortId(runId)} to ${file}`);
  },
});

/** Does not use `runsCommand`: it creates the store, but only after it has read a valid file. */
export const importCommand: Command = defineCommand({
  name: 'runs import',
  summary: 'Add an exported run to the store',
  arguments: ['FILE'],
  flags: { as: { type: 'text', value: 'ID', help: 'Id of the imported run; default: its own id' }, ...LOCATION_FLAGS },
  notes: ['"-" reads from standard input. A file that is damaged, has another format or a newer version is rejected.'],
  async run({ values, arguments: [file] }, io) {
    const read = file === '-' ? readStdin(io) : readFile(resolve(io.cwd, file!), 'utf8');
    const name = file === '-' ? 'Standard input' : file!;
    const run = parseRunFile(await orFileError(name, 'read', read), name);
    const runId = values.as ?? run.runId;
    if (!/^[\w.-]{1,200}$/.test(runId)) {
      throw new CommandError(`--as cannot be ${JSON.stringify(runId)}. An id has letters, digits, "_", "-" and ".".`);
    }
    const context = await resolveContext(values, io);
    rejectMemoryStore(context.store);
    const store = await openStore(context.store);
    try {
      await addRun(store, { ...run, runId });
      const replayed = replay(await store.read(runId));
      if (replayed.type === 'diverged') {
        const { seq, difference } = replayed;
        io.stderr.write(`The run can be shown but not resumed by this version: at entry ${seq}, ${difference}.\n`);
      }
      io.stderr.write(`Imported ${plural(run.entries.length, 'entry', 'entries')}.\n`);
      io.stdout.write(`${runId}\n`);
      return EXIT.completed;
    } finally {
      await store.close();
    }
  },
});

async function orFileError<T>(name: string, action: 'read' | 'written', access: Promise<T>): Promise<T> {
  return access.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EEXIST') throw new CommandError(`${name} already exists. Name another file, or delete it.`);
    throw new CommandError(`${name} cannot be ${action}: ${messageOf(error)}.`);
  });
}

/** Adds the whole run, or nothing if a blob is damaged. */
async function addRun(store: RunStore, { runId, entries, blobs }: RunFile): Promise<void> {
  if ((await store.read(runId)).length > 0) {
    throw new CommandError(`The store already has a run ${runId}. Import it under another id: --as ID.`);
  }
  const renamed = entries.map((entry) => {
    return entry.event.type === 'run-started' ? { ...entry, event: { ...entry.event, runId } } : entry;
  });
  await store.append(runId, renamed);
  try {
    for (const { id, text } of blobs) {
      if ((await store.blobs.put(runId, text)) === id) continue;
      throw new CommandError(`The long result ${id} does not match its id. The file is damaged; export the run again.`);
    }
  } catch (error) {
    await store.delete(runId);
    throw error;
  }
}

const FORMAT = 'treadle-run';
const VERSION = 1;

/**
 * JSON lines: a header, then one line per entry, then one line per blob. Each line has a checksum, so that damage is
 * found where it is. The header has the number of lines, so that a missing end is found.
 */
function runFileText({ runId, entries, blobs }: RunFile): string {
  const lines = [
    { format: FORMAT, version: VERSION, runId, entries: entries.length, blobs: blobs.length },
    ...entries.map((entry) => ({ entry, sum: checksum(entry) })),
    ...blobs.map((blob) => ({ blob, sum: checksum(blob) })),
  ];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

function checksum(content: unknown): number {
  return crc32(JSON.stringify(content));
}

/** Throws if the text is damaged, has another format or a newer version. The error names the line. */
function parseRunFile(text: string, name: string): RunFile {
  const lines = text.trimEnd().split('\n');
  const damaged = (line: number, what: string): CommandError =>
    new CommandError(`${name}, line ${line}: ${what}. The file is damaged; export the run again.`);
  const checkVersion = (line: number, version: unknown): void => {
    if (typeof version !== 'number' || version <= VERSION) return;
    throw new CommandError(`${name}, line ${line}: this Treadle cannot read version ${version}. Update Treadle.`);
  };
  const { format, version, runId, entries: entryCount, blobs: blobCount } = parseLine(lines[0]!) ?? {};
  if (format !== FORMAT) {
    const problem = text.trim() === '' ? 'is empty' : 'has another format: line 1 is not the header of a run';
    throw new CommandError(`${name} ${problem}. Import a file that "treadle runs export" wrote.`);
  }
  checkVersion(1, version);
  if (version !== VERSION || typeof runId !== 'string' || !isCount(entryCount) || !isCount(blobCount)) {
    throw damaged(1, 'the header is incomplete');
  }
  const contents = lines.slice(1).map((line, index) => {
    const kind = index < entryCount ? 'entry' : 'blob';
    const parsed = parseLine(line);
    if (!parsed) throw damaged(index + 2, 'it is not JSON');
    const content = parsed[kind] as Partial<JournalEntry> | undefined;
    if (!content) throw damaged(index + 2, `it has no ${kind}`);
    if (parsed['sum'] !== checksum(content)) throw damaged(index + 2, 'its checksum does not match');
    if (kind === 'entry') checkVersion(index + 2, content.v);
    if (kind === 'entry' && content.seq !== index)
      throw damaged(index + 2, `entry ${content.seq} follows ${index - 1}`);
    return content;
  });
  if (contents.length !== entryCount + blobCount) {
    throw new CommandError(
      `${name} has ${lines.length} lines instead of ${entryCount + blobCount + 1}: it is incomplete.`,
    );
  }
  const entries = contents.slice(0, entryCount) as readonly JournalEntry[];
  const first = entries[0]?.event;
  if (first?.type !== 'run-started' || first.runId !== runId) throw damaged(2, `it is not the start of ${runId}`);
  return { runId, entries, blobs: contents.slice(entryCount) as unknown as RunFile['blobs'] };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function parseLine(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
