import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { callerOf, walkInSlices } from '@treadle/core';
import type { Event, JournalEntry, RunStore } from '@treadle/core';
import {
  lineChecksum,
  parentOf,
  readRunFamily,
  RUN_FILE_FORMAT,
  RUN_FILE_VERSION,
  runFileLines,
  type ExportedRun,
  type RunFamily,
} from '@treadle/store';
import { CommandError, defineCommand, EXIT, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { decodeText, readProblem, writeProblem } from '../command-line/named-file.ts';
import { resolveContext } from '../config/context.ts';
import { openStore, rejectMemoryStore } from '../config/store.ts';
import { readStdin } from '../terminal/io.ts';
import { plural } from '../terminal/quantities.ts';
import { findRun, runsCommand, shortId } from './store-access.ts';

export const exportCommand: Command = runsCommand('export ID [FILE]', {
  summary: 'Write a run with its child runs and long results as JSON lines to a file or to standard output',
  details: 'The file contains the whole conversation. Forks are not included; export them separately.',
  examples: [
    'treadle runs export 1a2b licence.jsonl',
    'treadle runs export 1a2b | treadle runs import - --store sqlite:/elsewhere/runs.db',
  ],
  async run({ store, args: [prefix, file = '-'], io, note }) {
    const { runId } = await findRun(store, prefix!);
    const family = await readRunFamily(store, runId);
    const text = [...runFileLines(family)].join('');
    if (file === '-') return void io.stdout.write(text);
    // Only this user can read the file, and an existing file is not overwritten.
    await orFileError(file, 'written', writeFile(resolve(io.cwd, file), text, { flag: 'wx', mode: 0o600 }));
    const blobs = family.reduce((sum, run) => sum + run.blobs.length, 0);
    const results = blobs === 0 ? '' : ` and ${plural(blobs, 'long result')}`;
    note(`Wrote ${entryCountText(family)}${results} of ${shortId(runId)}${childCountText(family)} to ${file}`);
  },
});

function entryCountText(family: RunFamily): string {
  const count = family.reduce((sum, { entries }) => sum + entries.length, 0);
  return plural(count, 'entry', 'entries');
}

function childCountText({ length }: RunFamily): string {
  return length === 1 ? '' : ` and ${plural(length - 1, 'child run')}`;
}

/** Does not use `runsCommand`: it creates the store, but only after it has read a valid file. */
export const importCommand: Command = defineCommand({
  name: 'runs import',
  summary: 'Add an exported run with its child runs to the store',
  arguments: ['FILE'],
  flags: { as: { type: 'text', value: 'ID', help: 'Id of the imported run; default: its own id' }, ...LOCATION_FLAGS },
  notes: ['"-" reads from standard input. A file that is damaged, has another format or a newer version is rejected.'],
  examples: [
    'treadle runs import licence.jsonl',
    'treadle runs import licence.jsonl --as licence-2 --store sqlite:other.db',
  ],
  async run({ values, arguments: [file] }, io) {
    const text = await (file === '-'
      ? readStdin(io)
      : orFileError(file!, 'read', readFile(resolve(io.cwd, file!)).then(decodeText)));
    const exported = parseRunFile(text, file === '-' ? 'Standard input' : file!);
    const runId = values.as ?? exported[0].runId;
    if (!/^[\w.-]{1,200}$/.test(runId)) {
      throw new CommandError(`--as cannot be ${JSON.stringify(runId)}. An id has letters, digits, "_", "-" and ".".`);
    }
    const context = await resolveContext(values, io);
    rejectMemoryStore(context.store);
    const store = await openStore(context.store);
    try {
      await addFamily(store, renamedFamily(exported, runId));
      const replayed = await walkInSlices(await store.read(runId));
      if (replayed.type === 'diverged') {
        const { seq, difference } = replayed;
        io.stderr.write(`The run can be shown but not resumed by this version: at entry ${seq}, ${difference}.\n`);
      }
      const whose = exported.length === 1 ? '' : ` of ${shortId(runId)}${childCountText(exported)}`;
      io.stderr.write(`Imported ${entryCountText(exported)}${whose}.\n`);
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
    const why = action === 'read' ? readProblem(error) : writeProblem(error);
    throw new CommandError(`${name} cannot be ${action}: ${why}.`);
  });
}

/** The same runs with another id of the first one. The ids of its child runs are derived from it. */
function renamedFamily(family: RunFamily, newId: string): RunFamily {
  const names = new Map<string, string>();
  const rename = (runId: string): string => names.get(runId) ?? runId;
  const renamed = family.map((run, index): ExportedRun => {
    const { runId } = run;
    const caller = index === 0 ? undefined : parentOf(run)?.runId;
    const derived = caller !== undefined && runId.startsWith(`${caller}.`);
    names.set(runId, index === 0 ? newId : derived ? `${rename(caller)}${runId.slice(caller.length)}` : runId);
    return { ...run, runId: rename(runId) };
  });
  const [first, ...others] = renamed.map((run, index): ExportedRun => {
    // Its former caller would not find it under another id, so it is a run of its own.
    const independent = index === 0 && run.runId !== family[0].runId;
    return { ...run, entries: run.entries.map((entry) => ({ ...entry, event: renamedEvent(entry.event) })) };

    function renamedEvent(event: Event): Event {
      if (event.type === 'run-started') {
        const { parent, ...rest } = event;
        const kept = parent && !(independent && parent.effect !== undefined);
        return {
          ...rest,
          runId: rename(event.runId),
          ...(kept && { parent: { ...parent, runId: rename(parent.runId) } }),
        };
      }
      return event.type === 'tool-parked' ? { ...event, on: rename(event.on) } : event;
    }
  });
  return [first!, ...others];
}

/**
 * Adds all runs, or none if one exists or a blob is damaged. Adds the children of a run before the run: if the process
 * stops in between, there is no run that lacks a child which it has called.
 */
async function addFamily(store: RunStore, family: RunFamily): Promise<void> {
  for (const { runId } of family) {
    if ((await store.read(runId)).length === 0) continue;
    throw new CommandError(`The store already has a run ${runId}. Import it under another id: --as ID.`);
  }
  const added: string[] = [];
  try {
    for (const { runId, entries, blobs } of family.toReversed()) {
      await store.append(runId, entries);
      added.push(runId);
      for (const blob of blobs) {
        const { id } = blob;
        const content =
          'bytes' in blob ? { bytes: Buffer.from(blob.bytes, 'base64'), mediaType: blob.mediaType } : blob.text;
        if ((await store.blobs.put(runId, content)) === id) continue;
        throw new CommandError(
          `The long result ${id} does not match its id. The file is damaged; export the run again.`,
        );
      }
    }
  } catch (error) {
    for (const runId of added) await store.delete(runId);
    throw error;
  }
}

/** What the header says about a run. */
interface RunHeader {
  readonly runId: string;
  readonly entries: number;
  readonly blobs: number;
}

/** Throws if the text is damaged, has another format or a newer version. The error names the line. */
function parseRunFile(text: string, name: string): RunFamily {
  const lines = text.trimEnd().split('\n');
  const damaged = (line: number, what: string): CommandError =>
    new CommandError(`${name}, line ${line}: ${what}. The file is damaged; export the run again.`);
  const checkVersion = (line: number, version: unknown, supported: number): void => {
    if (typeof version !== 'number' || version <= supported) return;
    throw new CommandError(`${name}, line ${line}: this Treadle cannot read version ${version}. Update Treadle.`);
  };
  const header = parseLine(lines[0]!) ?? {};
  if (header['format'] !== RUN_FILE_FORMAT) {
    const problem = text.trim() === '' ? 'is empty' : 'has another format: line 1 is not the header of a run';
    throw new CommandError(`${name} ${problem}. Import a file that "treadle runs export" wrote.`);
  }
  checkVersion(1, header['version'], RUN_FILE_VERSION);
  const { version } = header;
  const runs = version === 1 ? [header] : version === 2 || version === RUN_FILE_VERSION ? header['runs'] : undefined;
  if (!Array.isArray(runs) || runs.length === 0 || !runs.every(isRunHeader)) {
    throw damaged(1, 'the header is incomplete');
  }

  let line = 1;
  const nextLine = <T>(kind: 'entry' | 'blob'): T => {
    const text = lines[line++];
    if (text === undefined) throw incomplete();
    const parsed = parseLine(text);
    if (!parsed) throw damaged(line, 'it is not JSON');
    const content = parsed[kind];
    if (!content) throw damaged(line, `it has no ${kind}`);
    if (parsed['sum'] !== lineChecksum(content)) throw damaged(line, 'its checksum does not match');
    return content as T;
  };
  const incomplete = (): CommandError => {
    const expected = runs.reduce((sum, { entries, blobs }) => sum + entries + blobs, 1);
    return new CommandError(`${name} has ${lines.length} lines instead of ${expected}: it is incomplete.`);
  };
  const known = new Set<string>();
  const [first, ...others] = runs.map(({ runId, entries: entryCount, blobs: blobCount }): ExportedRun => {
    const start = line + 1;
    const entries = Array.from({ length: entryCount }, (_, seq) => {
      const entry = nextLine<JournalEntry>('entry');
      checkVersion(line, entry.v, 1);
      if (entry.seq !== seq) throw damaged(line, `entry ${entry.seq} follows ${seq - 1}`);
      return entry;
    });
    const blobs = Array.from({ length: blobCount }, () => nextLine<ExportedRun['blobs'][number]>('blob'));
    const run = { runId, entries, blobs };
    const event = entries[0]?.event;
    if (event?.type !== 'run-started' || event.runId !== runId) throw damaged(start, `it is not the start of ${runId}`);
    const caller = callerOf(entries[0]);
    if (known.size > 0 && (known.has(runId) || caller === undefined || !known.has(caller))) {
      throw damaged(start, `${runId} is not a child run of a run in the file`);
    }
    known.add(runId);
    return run;
  });
  if (line !== lines.length) throw incomplete();
  return [first!, ...others];
}

function isRunHeader(value: unknown): value is RunHeader {
  const { runId, entries, blobs } = (value ?? {}) as Record<string, unknown>;
  return typeof runId === 'string' && isCount(entries) && isCount(blobs);
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
