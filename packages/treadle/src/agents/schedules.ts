import type { WireSchedule, WireScheduleRun } from '@treadle/server/wire';
import {
  CommandError,
  defineCommand,
  EXIT,
  SUMMARIES,
  type Command,
  type CommandGroup,
} from '../command-line/command.ts';
import { LOCATION_FLAGS, type LocationValues } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import {
  connectToServer,
  SERVER_FLAGS,
  type ServerConnection,
  type ServerValues,
} from '../operate/server-connection.ts';
import { readTextFile } from '../run/task-input.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, exactLine, oneLine } from '../terminal/printable.ts';

const FLAGS = { ...SERVER_FLAGS, ...LOCATION_FLAGS } as const;
const NOTE =
  'A server starts what is due. The command asks the server of this machine that uses the store, or that of --url or of the\n' +
  'environment variable TREADLE_URL. TREADLE_KEY has its key, which needs the scope agents:invoke.';

async function server(values: ServerValues & LocationValues, io: Io): Promise<ServerConnection> {
  const { store } = await resolveContext(values, io);
  const found = await connectToServer(values, store, io);
  if (found) return found;
  throw new CommandError('No server uses the store. Start one with "treadle serve", or name one with --url.');
}

const listCommand: Command = defineCommand({
  name: 'schedule list',
  summary: 'List the schedules, with when they are due and what they have started',
  flags: FLAGS,
  notes: [NOTE],
  examples: ['treadle schedule list', 'treadle schedule list --json'],
  async run({ values }, io) {
    const { data } = await (await server(values, io)).get<{ readonly data: readonly WireSchedule[] }>('/v1/schedules');
    if (values.json) {
      io.stdout.write(`${JSON.stringify(data, null, 2)}\n`);
      return EXIT.completed;
    }
    if (data.length === 0) io.stderr.write('There are no schedules. "treadle schedule add" adds one.\n');
    const rows = data.map((one) => [
      one.name,
      one.agent,
      timingText(one),
      one.next_at === null ? 'never' : timeText(one.next_at),
      one.last ? timeText(one.last.due_at) : '-',
      one.source === 'config' ? 'treadle.toml' : 'added',
    ]);
    const table = rows.length === 0 ? [] : alignColumns([['NAME', 'STARTS', 'WHEN', 'NEXT', 'LAST', 'FROM'], ...rows]);
    for (const [index, row] of table.entries()) {
      io.stdout.write(`${row.join('  ').trimEnd()}\n`);
      const problem = data[index - 1]?.problem;
      if (problem) io.stdout.write(`  not started at ${timeText(problem.due_at)}: ${oneLine(problem.message, 200)}\n`);
    }
    return EXIT.completed;
  },
});

function timingText({ cron, time_zone: zone, every }: WireSchedule): string {
  return exactLine(cron === null ? `every ${every} s` : `${cron} (${zone})`);
}

function timeText(iso: string): string {
  return iso.replace('T', ' ').replace(/\.\d+Z$/, 'Z');
}

const addCommand: Command = defineCommand({
  name: 'schedule add',
  summary: 'Start a workflow or an agent at times',
  arguments: ['NAME'],
  flags: {
    workflow: { type: 'text', value: 'NAME', help: 'The workflow that it starts' },
    agent: { type: 'text', value: 'NAME', help: 'The agent that it starts, instead of a workflow' },
    cron: { type: 'text', value: 'CRON', help: 'Such as "30 6 * * MON-FRI"' },
    'time-zone': { type: 'text', value: 'ZONE', help: 'Of --cron, such as Europe/Oslo; default: UTC' },
    every: { type: 'text', value: 'INTERVAL', help: 'Such as 90s, 15m or 1d, instead of --cron' },
    inputs: { type: 'text', value: 'JSON', help: 'The inputs: a JSON object, or a file with one after an @' },
    missed: { type: 'choice', choices: ['skip', 'once', 'all'], help: 'Due times when no server ran; default: once' },
    overlap: {
      type: 'choice',
      choices: ['skip', 'wait', 'allow'],
      help: 'What if its last run has not ended; default: skip',
    },
    ...FLAGS,
  },
  notes: [
    'It is stored, and every server with the store knows it. [[schedules]] of treadle.toml is the other way.',
    NOTE,
  ],
  examples: [
    'treadle schedule add nightly --workflow publish --cron "0 3 * * *" --time-zone Europe/Oslo',
    'treadle schedule add poll --agent watcher --every 15m --inputs \'{"task": "Look at the queue"}\'',
  ],
  async run({ values, arguments: [name] }, io) {
    const { workflow, agent, cron, every, missed, overlap } = values;
    const connection = await server(values, io);
    const inputs = values.inputs === undefined ? undefined : await inputsIn(values.inputs, io);
    const given = { workflow, agent, inputs, cron, time_zone: values['time-zone'], every, missed, overlap };
    const body = { name, ...Object.fromEntries(Object.entries(given).filter(([, one]) => one !== undefined)) };
    const added = await connection.send<WireSchedule>('POST', '/v1/schedules', body);
    if (values.json) io.stdout.write(`${JSON.stringify(added, null, 2)}\n`);
    else
      io.stdout.write(`${added.name} is due next at ${added.next_at === null ? 'no time' : timeText(added.next_at)}\n`);
    return EXIT.completed;
  },
});

async function inputsIn(given: string, io: Io): Promise<unknown> {
  const text = given.startsWith('@') ? await readTextFile(given.slice(1), io) : given;
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandError('--inputs must be a JSON object, or a file with one after an @.');
  }
}

const removeCommand: Command = defineCommand({
  name: 'schedule remove',
  summary: 'Delete a schedule',
  arguments: ['NAME'],
  flags: FLAGS,
  notes: ['The runs that it has started go on.', NOTE],
  examples: ['treadle schedule remove nightly'],
  async run({ values, arguments: [name] }, io) {
    const connection = await server(values, io);
    const deleted = await connection.send<object>('DELETE', `/v1/schedules/${encodeURIComponent(name!)}`, {});
    io.stdout.write(values.json ? `${JSON.stringify(deleted, null, 2)}\n` : `Deleted ${exactLine(name!)}\n`);
    return EXIT.completed;
  },
});

const runCommand: Command = defineCommand({
  name: 'schedule run',
  summary: 'Start what a schedule starts, now',
  arguments: ['NAME'],
  flags: FLAGS,
  notes: ['Prints the id of the run. The schedule goes on as before.', NOTE],
  examples: ['treadle schedule run nightly'],
  async run({ values, arguments: [name] }, io) {
    const connection = await server(values, io);
    const path = `/v1/schedules/${encodeURIComponent(name!)}/run`;
    const started = await connection.send<WireScheduleRun>('POST', path, {});
    io.stdout.write(values.json ? `${JSON.stringify(started, null, 2)}\n` : `${started.run_id}\n`);
    return EXIT.completed;
  },
});

export const scheduleGroup: CommandGroup = {
  name: 'schedule',
  summary: SUMMARIES.schedule,
  commands: [listCommand, addCommand, removeCommand, runCommand],
  notes: ['Each due time starts one run, on one of the servers with the same store.'],
};
