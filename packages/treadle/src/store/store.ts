import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { MigrationProgress, ProgressOptions, StoreProblem, StoreProgress, StoreReport } from '@treadle/store';
import type * as StorePackage from '@treadle/store';
import { CommandError, defineCommand, EXIT, SUMMARIES } from '../command-line/command.ts';
import type { Command, CommandGroup, Flags, Values } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import {
  createStoreFolder,
  loadStorePackage,
  missingStoreText,
  parseStoreUrl,
  rejectMemoryStore,
  requireStoreInFile,
  storeText,
} from '../config/store.ts';
import type { Io } from '../terminal/io.ts';
import { plural } from '../terminal/quantities.ts';
import { catchInterrupt } from '../terminal/signals.ts';

/** What a subcommand of `treadle store` works with. */
interface StoreRequest<V> {
  readonly values: V;
  /** The file of the store. */
  readonly store: string;
  /** The URL of a store in PostgreSQL. Undefined: it is in a file. */
  readonly url: string | undefined;
  /** The argument as a path. */
  readonly file: string;
  readonly functions: typeof StorePackage;
  /** Shows the progress on a terminal, and stops at Ctrl-C. */
  readonly long: ProgressOptions;
  print(...lines: readonly string[]): void;
  note(text: string): void;
}

function storeCommand<const F extends Flags>(
  usage: string,
  definition: {
    readonly summary: string;
    readonly flags: F;
    readonly details: string;
    readonly examples: Command['examples'];
    readonly run: (request: StoreRequest<Values<F>>) => Promise<number>;
  },
): Command {
  const [name, ...positionals] = usage.split(' ');
  const { summary, flags, details, examples } = definition;
  return defineCommand<Flags>({
    name: `store ${name}`,
    summary,
    arguments: positionals,
    flags: { ...flags, ...LOCATION_FLAGS },
    notes: [details],
    examples,
    async run({ values, arguments: args }, io) {
      const { store } = await resolveContext(values, io);
      if (name === 'check') rejectMemoryStore(store);
      else requireStoreInFile(store);
      const progress = progressLine(io);
      const interrupt = catchInterrupt(io);
      try {
        return await definition.run({
          values: values as Values<F>,
          store: store.file,
          url: store.type === 'postgres' ? store.url : undefined,
          file: resolve(io.cwd, args[0] ?? ''),
          functions: await loadStorePackage(),
          long: { onProgress: progress.show, signal: interrupt.signal },
          print: (...lines) => void io.stdout.write(lines.map((line) => `${line}\n`).join('')),
          note(text) {
            progress.clear();
            io.stderr.write(`${text}\n`);
          },
        });
      } catch (error) {
        if (!interrupt.signal.aborted) throw error;
        progress.clear();
        io.stderr.write('Stopped. Nothing was changed.\n');
        return EXIT.cancelled;
      } finally {
        progress.clear();
        interrupt.release();
      }
    },
  });
}

const backupCommand = storeCommand('backup FILE', {
  summary: 'Copy the store to a file, while servers and runs use it',
  flags: { force: { type: 'switch', help: 'Replace FILE if it is a store or a backup that nobody uses' } },
  details:
    'The copy contains everything that was stored when the command started. It is one file that only you can read, and it is\n' +
    'checked like "treadle store check" does before it gets its name. Exits with 1 if something in the store is damaged; the\n' +
    'backup is written nevertheless.',
  examples: ['treadle store backup /backups/treadle-2026-11-15.db'],
  async run({ values, store, file, functions, long, note }) {
    requireStoreFile(store);
    const report = await functions.backupStore(store, file, { ...long, force: values.force === true });
    note(`Copied ${contentText(report)} to ${file}`);
    if (report.problems.length === 0) return EXIT.completed;
    note(['The store is damaged, and so is the copy:', ...problemLines(report.problems)].join('\n'));
    return EXIT.failed;
  },
});

const restoreCommand = storeCommand('restore FILE', {
  summary: 'Replace the store by a backup',
  flags: { force: { type: 'switch', help: 'Restore FILE even if parts of it are damaged' } },
  details:
    'Stop all servers and runs first: the command refuses while another process has the store open. It checks the backup,\n' +
    'keeps the replaced store in a file beside it, and then replaces the content in one step. If it is killed, the store has\n' +
    'its old content or the new one.\n\n' +
    'Unfinished runs continue from where they were at the time of the backup. What they did after that is not in the backup,\n' +
    'so they may do it again, with the same keys. A server resumes its unfinished responses when it starts.',
  examples: ['treadle store restore /backups/treadle-2026-11-15.db'],
  async run({ values, store, file, functions, long, note }) {
    await createStoreFolder(dirname(store));
    const options = { ...long, force: values.force === true };
    const { report, replaced } = await functions.restoreStore(store, file, options);
    note(`Restored ${contentText(report)} from ${file}`);
    if (replaced !== undefined) note(`The replaced store is kept in ${replaced}`);
    return EXIT.completed;
  },
});

const checkCommand = storeCommand('check', {
  summary: 'Check that everything in the store is intact',
  flags: { json: { type: 'switch', help: 'Print JSON' } },
  details:
    'Checks the database file (not that of PostgreSQL), reads everything in it, and replays every run. Servers and runs can\n' +
    'use the store meanwhile. Exits with 0 if there is no problem, with 1 if there is one. To check a backup, name it with\n' +
    '--store sqlite:FILE.',
  examples: ['treadle store check', 'treadle store check --store sqlite:/backups/treadle-2026-11-15.db --json'],
  async run({ values, store, url, functions, long, print, note }) {
    if (url === undefined) requireStoreFile(store);
    const report = await (url === undefined
      ? functions.checkStore(store, long)
      : functions.checkPostgresStore(url, long));
    const { problems } = report;
    if (values.json) print(JSON.stringify(report, null, 2));
    else print(...problemLines(problems));
    note(
      `Checked ${contentText(report)}: ${problems.length === 0 ? 'no problems' : plural(problems.length, 'problem')}.`,
    );
    return problems.length === 0 ? EXIT.completed : EXIT.failed;
  },
});

const migrateCommand = defineCommand({
  name: 'store migrate',
  summary: 'Copy a store into an empty one of another kind, such as PostgreSQL',
  arguments: ['FROM', 'TO'],
  flags: { json: { type: 'switch', help: 'Print JSON' }, cwd: LOCATION_FLAGS.cwd },
  notes: [
    'FROM and TO are URLs of stores: sqlite:PATH or postgres://USER@HOST/DATABASE. Stop all servers and runs first: it refuses\n' +
      'a store that another process uses. FROM is not changed. TO is created if it does not exist; nobody can open it before it\n' +
      'is complete. Everything is copied except leases, then read from both stores and compared. If it is stopped, run it again\n' +
      'with the same stores: it goes on where it was. Name the database itself, not a pooler. PGPASSWORD has the password if the\n' +
      'URL has none.',
  ],
  examples: ['treadle store migrate sqlite:.treadle/treadle.db postgres://treadle@db.internal/treadle'],
  async run({ values, arguments: args }, io) {
    const [from, to] = args.map((url, index) =>
      migratedStore(url, index === 0 ? 'FROM' : 'TO', resolve(io.cwd, values.cwd ?? '.')),
    );
    const progress = progressLine(io);
    const interrupt = catchInterrupt(io);
    try {
      const { migrateStore } = await loadStorePackage();
      const report = await migrateStore(from!.url, to!.url, { onProgress: progress.show, signal: interrupt.signal });
      progress.clear();
      if (values.json) io.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
      const counts = Object.entries(report.parts).filter(([, { rows }]) => rows > 0);
      const text = counts
        .map(([part, { rows }]) => `${rows.toLocaleString('en')} ${part.replaceAll('_', ' ')}`)
        .join(', ');
      io.stderr.write(
        `Copied and compared${text === '' ? ': the store is empty' : ` ${text}`}.\nNow set [store] url to ${to!.text}. ${from!.text} is unchanged: do not use both.\n`,
      );
      return EXIT.completed;
    } catch (error) {
      progress.clear();
      if (!interrupt.signal.aborted) throw error;
      io.stderr.write('Stopped. Run it again with the same stores to go on.\n');
      return EXIT.cancelled;
    } finally {
      progress.clear();
      interrupt.release();
    }
  },
});

function migratedStore(given: string, from: string, folder: string): { readonly url: string; readonly text: string } {
  const location = parseStoreUrl(given, { from, folder });
  rejectMemoryStore(location);
  const text = location.type === 'sqlite' ? `sqlite:${location.file}` : storeText(location);
  return { url: location.type === 'sqlite' ? text : location.url, text };
}

export const storeGroup: CommandGroup = {
  name: 'store',
  summary: SUMMARIES.store,
  commands: [backupCommand, restoreCommand, checkCommand, migrateCommand],
  notes: ['Do not copy the file of a store with other tools while it is in use: the copy can lack the last changes.'],
};

function requireStoreFile(file: string): void {
  if (!existsSync(file)) throw new CommandError(missingStoreText(file));
}

function contentText({ runs, entries, blobs, responses }: StoreReport): string {
  const more = [blobs > 0 && plural(blobs, 'long result'), responses > 0 && plural(responses, 'response')];
  return [plural(runs, 'run'), plural(entries, 'entry', 'entries'), ...more.filter((text) => text !== false)].join(
    ', ',
  );
}

/** The problems of each run and response below its id. */
function problemLines(problems: readonly StoreProblem[]): readonly string[] {
  const groups = Map.groupBy(problems, ({ runId, response }) => runId ?? response ?? 'The file');
  return [...groups].flatMap(([name, group]) => [name, ...group.map(({ message }) => `  ${message}`)]);
}

type Progress = StoreProgress | MigrationProgress;

const PROGRESS_MS = 1_000;
const MEGABYTE = 1_000_000;

/** On a terminal, a line about the progress of work that takes longer than a second. */
function progressLine(io: Io): { readonly show: (progress: Progress) => void; readonly clear: () => void } {
  let shownAt = performance.now();
  let visible = false;
  return {
    show(progress) {
      if (!io.stderr.isTTY || performance.now() - shownAt < PROGRESS_MS) return;
      shownAt = performance.now();
      visible = true;
      io.stderr.write(`\r\u001b[K${progressText(progress)}`);
    },
    clear() {
      if (visible) io.stderr.write('\r\u001b[K');
      visible = false;
    },
  };
}

function progressText({ step, done, total }: Progress): string {
  const [verb, unit] = STEPS[step];
  const amount = (value: number): string => Math.round(unit === 'MB' ? value / MEGABYTE : value).toLocaleString('en');
  return `${verb} ${amount(done)} of ${amount(total)} ${unit}`;
}

const STEPS = {
  copy: ['Copied', 'MB'],
  check: ['Checked', 'runs and responses'],
  keep: ['Copied the replaced store:', 'MB'],
  replace: ['Replaced', 'MB'],
  migrate: ['Copied', 'entries and rows'],
  verify: ['Compared', 'entries and rows'],
} as const satisfies Record<Progress['step'], readonly [string, string]>;
