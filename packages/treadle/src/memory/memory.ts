import { embedItems, MEMORY_LEVELS, type MemoryItem } from '@treadle/core/memory';
import type { WireMemory } from '@treadle/server/wire';
import {
  CommandError,
  defineCommand,
  EXIT,
  SUMMARIES,
  type CommandGroup,
  type Command,
  type Flags,
  type Values,
} from '../command-line/command.ts';
import { LOCATION_FLAGS, type LocationValues } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { openEmbedder } from './open-embedder.ts';
import { loadStorePackage, openExistingStore } from '../config/store.ts';
import { timeIn } from '../operate/metrics.ts';
import { SERVER_FLAGS, SERVER_NOTE, type ServerValues } from '../operate/server-connection.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, oneLine, printable } from '../terminal/printable.ts';
import { confirmOnTerminal } from '../terminal/prompt.ts';
import { ageText, parseAge, plural, timestampText } from '../terminal/quantities.ts';
import { openMemory, type MemoryAccess, type Wanted } from './access.ts';

const TYPES = Object.keys({
  note: 0,
  llm_response: 0,
  tool_call: 0,
  decision: 0,
  error: 0,
} satisfies Record<MemoryItem['type'], 0>) as readonly MemoryItem['type'][];

const TENANT_FLAG = {
  tenant: { type: 'text', value: 'NAME', help: 'The tenant, if the store is read; default: that of the command' },
} as const;

const FILTER_FLAGS = {
  type: { type: 'choice', choices: TYPES, help: 'Only these' },
  session: { type: 'text', value: 'ID', help: 'Only of this session or conversation' },
  agent: { type: 'text', value: 'NAME', help: 'Only of this agent' },
  subject: { type: 'text', value: 'NAME', help: 'Only of this key' },
  tag: { type: 'text', value: 'NAME', help: 'Only with this tag' },
  run: { type: 'text', value: 'ID', help: 'Only of this run' },
  since: { type: 'text', value: 'TIME', help: 'From then on: an age such as 24h or 7d, or a date' },
  until: { type: 'text', value: 'TIME', help: 'Until then' },
} as const;

const LEVEL_FLAG = {
  level: { type: 'choice', choices: MEMORY_LEVELS, help: 'How much of each; default: index, which is a line' },
} as const;

interface Request<F extends Flags> {
  readonly values: Values<F> & ServerValues & LocationValues;
  readonly args: readonly string[];
  readonly memory: MemoryAccess;
  readonly io: Io;
  readonly colours: Colours;
  print(lines: readonly string[]): void;
  note(text: string): void;
}

interface Definition<F extends Flags> {
  readonly summary: string;
  readonly flags?: F;
  readonly details: string;
  readonly examples: Command['examples'];
  readonly run: (request: Request<F>) => Promise<number | void>;
}

function memoryCommand<const F extends Flags>(
  usage: string,
  { summary, flags, details, examples, run }: Definition<F>,
) {
  const [name, ...positionals] = usage.split(' ');
  return defineCommand<Flags>({
    name: `memory ${name}`,
    summary,
    arguments: positionals,
    flags: { ...flags, ...TENANT_FLAG, ...SERVER_FLAGS, ...LOCATION_FLAGS },
    notes: [details, SERVER_NOTE],
    examples,
    async run({ values: parsed, arguments: args }, io) {
      const values = parsed as Request<F>['values'];
      const memory = await openMemory(values, await resolveContext(values, io), io);
      try {
        const colours = coloursFor(io.stdout, io.env);
        const print = (lines: readonly string[]): void =>
          void io.stdout.write(lines.map((line) => `${line}\n`).join(''));
        const note = (text: string): void => void io.stderr.write(`${text}\n`);
        return (await run({ values, args, memory, io, colours, print, note })) ?? EXIT.completed;
      } finally {
        await memory.close();
      }
    },
  });
}

const NOTHING = 'Nothing is remembered. enabled = true in [memory] of treadle.toml switches it on.';

const listCommand = memoryCommand('list', {
  summary: 'List what is remembered, the newest first',
  flags: {
    ...FILTER_FLAGS,
    ...LEVEL_FLAG,
    limit: { type: 'count', short: 'n', value: 'N', min: 1, help: 'At most so many; default: 20' },
  },
  details: 'What a run did is there when it has paused or ended. The key needs the scope memory:read.',
  examples: ['treadle memory list', 'treadle memory list --type note', 'treadle memory list --since 7d --json'],
  async run({ values, memory, print, note, colours, io }) {
    const { limit = 20, level = 'index' } = values;
    const items: WireMemory[] = [];
    const filter = filterOf(values);
    for await (const page of memory.pages({ ...filter, level, limit })) items.push(...page);
    if (values.json) return print([JSON.stringify(items, null, 2)]);
    if (items.length === 0) return note(Object.keys(filter).length > 0 ? 'Nothing was found.' : NOTHING);
    print(level === 'index' ? table(items, colours, widthOf(io)) : items.flatMap((item) => paragraph(item, colours)));
  },
});

const searchCommand = memoryCommand('search TEXT…', {
  summary: 'Find what is remembered by words, and by meaning if a model for embeddings is configured',
  flags: {
    ...LEVEL_FLAG,
    tag: FILTER_FLAGS.tag,
    limit: { type: 'count', short: 'n', value: 'N', min: 1, max: 100, help: 'At most so many; default: 5' },
  },
  details: 'The best first. The key needs the scope memory:read.',
  examples: ['treadle memory search favourite colour', 'treadle memory search harbour --tag work'],
  async run({ values, args, memory, print, note, colours, io }) {
    const { limit = 5, level = 'index', tag } = values;
    const items = await memory.search(args.join(' '), { level, limit, ...(tag !== undefined && { tag }) });
    if (values.json) return print([JSON.stringify(items, null, 2)]);
    if (items.length === 0) return note('Nothing was found. Try other words.');
    print(level === 'index' ? table(items, colours, widthOf(io)) : items.flatMap((item) => paragraph(item, colours)));
  },
});

const showCommand = memoryCommand('show ID', {
  summary: 'Show all of one item',
  details: 'The key needs the scope memory:read.',
  examples: ['treadle memory show run_1a2b/3'],
  async run({ values, args: [id], memory, print, colours }) {
    const item = await memory.get(id!);
    if (!item) throw unknownItem(id!);
    print(values.json ? [JSON.stringify(item, null, 2)] : paragraph(item, colours));
  },
});

const forgetCommand = memoryCommand('forget [ID…]', {
  summary: 'Forget items, what is of a session or a key, what is old, or everything',
  flags: {
    session: { type: 'text', value: 'ID', help: 'What is of this session or conversation' },
    subject: { type: 'text', value: 'NAME', help: 'What is of this key' },
    'older-than': {
      type: 'text',
      value: 'AGE',
      help: 'What is older, such as 30d, 12h or 2w; with the others, of that',
    },
    all: { type: 'switch', help: 'Everything of the tenant' },
    yes: { type: 'switch', short: 'y', help: 'Do not ask for confirmation' },
  },
  details:
    'It is gone with its index and its vectors, and does not come back when observations are made again. The journals of the runs\n' +
    'keep what they did: "treadle runs delete" deletes them. The key needs the scope memory:write.',
  examples: [
    "treadle memory forget 'run_1a2b/3'",
    'treadle memory forget --session conv_1a2b',
    'treadle memory forget --older-than 90d --yes',
  ],
  async run({ values, args: ids, memory, io, note }) {
    const { session, subject, all = false, yes } = values;
    const age = values['older-than'];
    const until = age === undefined ? undefined : Date.now() - ageOf(age);
    const what = {
      ...(session !== undefined && { session }),
      ...(subject !== undefined && { subject }),
      ...(until !== undefined && { until }),
    };
    const isFiltered = Object.keys(what).length > 0;
    if (Number(ids.length > 0) + Number(isFiltered) + Number(all) !== 1) {
      throw new CommandError('Say what to forget: ids, or --session, --subject and --older-than, or --all.');
    }
    for (const id of ids) if (!(await memory.get(id))) throw unknownItem(id);
    const lines = ids.map((id) => `  ${oneLine(id, 100)}`);
    if (!yes && !(await confirmOnTerminal(io, lines, `Forget ${ids.length > 0 ? 'them' : 'all of that'}?`))) {
      note('Nothing was forgotten.');
      return EXIT.failed;
    }
    let count = 0;
    for (const id of ids) count += await memory.forget({ id });
    if (ids.length === 0) count = await memory.forget(what);
    note(`Forgot ${plural(count, 'item')}.`);
    return EXIT.completed;
  },
});

const exportCommand = memoryCommand('export', {
  summary: 'Write what is remembered as JSON lines to standard output',
  flags: FILTER_FLAGS,
  details: 'Nothing that is private is there: it was never remembered. The key needs the scope memory:read.',
  examples: ['treadle memory export > memory.jsonl', 'treadle memory export --subject ann'],
  async run({ values, memory, print }) {
    for await (const page of memory.pages({ ...filterOf(values), level: 'full', limit: Infinity })) {
      print(page.map((item) => JSON.stringify(item)));
    }
  },
});

const rebuildCommand = defineCommand({
  name: 'memory rebuild',
  summary: 'Make all observations again from the journals, and the vectors that are missing',
  flags: LOCATION_FLAGS,
  notes: [
    'Of all tenants. Notes stay, and what was forgotten stays away. It works on the store, also while a server uses it.',
  ],
  examples: ['treadle memory rebuild'],
  async run({ values }, io) {
    const context = await resolveContext(values, io);
    const { embedder } = await openEmbedder(context.loaded, io.env);
    const store = await openExistingStore(context.store);
    try {
      const { countNotedRuns } = await loadStorePackage();
      await store.memory.restart();
      while ((await countNotedRuns(store, { keepsMemory: true })) > 0);
      if (embedder) await embedItems(store.memory, embedder);
      await store.durable();
      io.stderr.write('The observations of all runs were made again.\n');
      return EXIT.completed;
    } finally {
      await store.close();
    }
  },
});

export const memoryGroup: CommandGroup = {
  name: 'memory',
  summary: SUMMARIES.memory,
  commands: [listCommand, searchCommand, showCommand, forgetCommand, rebuildCommand, exportCommand],
  notes: [
    'With enabled = true in [memory] of treadle.toml, what runs did is remembered. Notes are written by agents and people.',
  ],
};

function filterOf(values: Values<typeof FILTER_FLAGS>): Omit<Wanted, 'level' | 'limit'> {
  const { type, session, agent, subject, tag, run } = values;
  const [since, until] = [timeIn('--since', values.since), timeIn('--until', values.until)];
  return {
    ...(type !== undefined && { type }),
    ...(session !== undefined && { session }),
    ...(agent !== undefined && { agent }),
    ...(subject !== undefined && { subject }),
    ...(tag !== undefined && { tag }),
    ...(run !== undefined && { runId: run }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  };
}

function ageOf(text: string): number {
  const age = parseAge(text);
  if (age !== undefined) return age;
  throw new CommandError(
    `--older-than cannot be ${JSON.stringify(text)}. It takes a number with s, m, h, d or w, such as 30d.`,
  );
}

function unknownItem(id: string): CommandError {
  return new CommandError(
    `There is nothing with the id ${JSON.stringify(id)}. "treadle memory list" lists what there is.`,
  );
}

function table(items: readonly WireMemory[], colours: Colours, width: number): readonly string[] {
  const cells = items.map(({ id, event_type: type, timestamp }) => [
    oneLine(id, 60),
    type,
    ageText(Date.now() - Date.parse(timestamp)),
  ]);
  const [head, ...rows] = alignColumns([['ID', 'TYPE', 'AGE'], ...cells]).map((row) => row.join('  '));
  const left = Math.max(20, width - head!.length - 2);
  return [colours.dim(`${head}  TEXT`), ...rows.map((row, index) => `${row}  ${oneLine(textOf(items[index]!), left)}`)];
}

function textOf({ key, content, outside }: WireMemory): string {
  return `${outside ? '(from outside) ' : ''}${key === null ? '' : `${key}: `}${content}`;
}

function paragraph(item: WireMemory, colours: Colours): readonly string[] {
  const of = Object.entries({
    run: item.run_id,
    session: item.session_id,
    agent: item.agent_name,
    key: item.subject,
    scope: item.scope,
    tags: item.tags.join(', ') || null,
  }).flatMap(([name, value]) => (value === null || value === '' ? [] : [`${name} ${oneLine(value, 80)}`]));
  const at = timestampText(Date.parse(item.timestamp));
  return [
    colours.bold(oneLine(item.id, 200)),
    colours.dim([item.event_type, at, ...of].join(' · ')),
    ...printable(textOf(item)).split('\n'),
    '',
  ];
}

function widthOf({ stdout }: Io): number {
  return stdout.isTTY ? (stdout.columns ?? 80) : Infinity;
}
