import { messageOf } from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import type { DeviceView } from '@treadle/edge';
import {
  CommandError,
  defineCommand,
  EXIT,
  SUMMARIES,
  type Command,
  type CommandGroup,
} from '../command-line/command.ts';
import { LOCATION_FLAGS, LOG_FLAGS, YES_FLAG } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, exactLine, oneLine } from '../terminal/printable.ts';
import { catchStopSignal } from '../terminal/signals.ts';
import { CALL_EXIT_CODES, callOnce } from '../tools/call-once.ts';
import { checkDevice, connectEdge } from './open-edge.ts';
import { openDeviceSession } from './device-session.ts';

const CONFIG_FLAGS = { config: LOCATION_FLAGS.config, cwd: LOCATION_FLAGS.cwd } as const;
/** For the retained messages of the devices. */
const SETTLE_MS = 500;

/** `treadle edge` alone: this machine is a device. */
export const edgeCommand: Command = defineCommand({
  name: 'edge',
  summary: 'Run the tools of this machine for an orchestrator',
  flags: {
    config: { type: 'text', short: 'c', value: 'FILE', help: 'Configuration of the device; default: edge.toml' },
    broker: { type: 'text', value: 'URL', help: 'The broker; default: [edge] broker, or mqtt://127.0.0.1:1883' },
    id: { type: 'text', value: 'NAME', help: 'The name of the device; default: [agent] id, or the name of the host' },
  },
  notes: ['The program treadle-edge of @treadle/edge does the same, without the rest of Treadle.'],
  examples: ['treadle edge', 'treadle edge --broker mqtts://broker.example:8883'],
  async run({ values }, io) {
    const { DeviceConfigError, loadDeviceConfig, openDevice } = await import('@treadle/edge/device');
    const stop = catchStopSignal(io);
    try {
      const config = await loadDeviceConfig(values, { cwd: io.cwd, env: io.env });
      const ended = Promise.withResolvers<void>();
      const agent = await openDevice({
        config,
        log: (line) => io.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), ...line })}\n`),
        onShutdown: () => ended.resolve(),
      }).catch((error: Error) => {
        // Its tools, its sandbox, or its store.
        throw new CommandError(messageOf(error));
      });
      io.stdout.write(`Device ${agent.id} is ready\n`);
      await Promise.race([stop.received, ended.promise]);
      await agent.close(config.graceMs);
      return EXIT.completed;
    } catch (error) {
      if (error instanceof DeviceConfigError || error instanceof TypeError) throw new CommandError(messageOf(error));
      throw error;
    } finally {
      stop.release();
    }
  },
});

const listCommand: Command = defineCommand({
  name: 'edge list',
  summary: 'List the devices of the configuration, with their state',
  flags: { json: { type: 'switch', help: 'Print JSON' }, ...CONFIG_FLAGS },
  notes: ['With --json, the output has capabilities and the schemas of their tools, too.'],
  examples: ['treadle edge list', 'treadle edge list --json'],
  async run({ values }, io) {
    const context = await resolveContext(values, io);
    const edge = await connectEdge({ context, env: io.env });
    try {
      const names = Object.keys(context.loaded.config.edge?.devices ?? {});
      await Promise.all(names.map((name) => edge.link.whenReady(name, SETTLE_MS)));
      const devices = edge.link.devices();
      if (values.json) {
        io.stdout.write(`${JSON.stringify(devices, null, 2)}\n`);
        return EXIT.completed;
      }
      if (devices.length === 0) io.stderr.write('There are no devices. Add [edge.devices.NAME] to treadle.toml.\n');
      const rows = devices.map((one) => [one.name, one.status, one.tenant, toolsText(one)]);
      if (rows.length > 0) printRows(io, [['NAME', 'STATUS', 'TENANT', 'TOOLS'], ...rows]);
      return EXIT.completed;
    } finally {
      await edge.close();
    }
  },
});

function toolsText({ capabilities, tools, isPlain }: DeviceView): string {
  if (!capabilities && !isPlain) return '-';
  return oneLine(tools.map(({ name }) => name).join(', '), 100);
}

function printRows(io: Io, rows: readonly (readonly string[])[]): void {
  for (const row of alignColumns(rows)) io.stdout.write(`${row.join('  ').trimEnd()}\n`);
}

const pingCommand: Command = defineCommand({
  name: 'edge ping',
  summary: 'Measure how long a device takes to answer, and show its load',
  arguments: ['NAME'],
  flags: { json: { type: 'switch', help: 'Print JSON' }, ...CONFIG_FLAGS },
  notes: ['Exit code 1: the device does not answer.'],
  examples: ['treadle edge ping living-room-pi'],
  async run({ values, arguments: [name = ''] }, io) {
    const context = await resolveContext(values, io);
    checkDevice(context, name);
    const edge = await connectEdge({ context, env: io.env });
    try {
      const { latencyMs, load } = await edge.link.ping(name);
      if (values.json) io.stdout.write(`${JSON.stringify({ device: name, latency_ms: latencyMs, ...load })}\n`);
      else {
        const facts = Object.entries(load)
          .filter(([key]) => key !== 'pong')
          .map(([key, value]) => `${key} ${String(value)}`);
        const shown = facts.length === 0 ? '' : `: ${exactLine(facts.join(', '))}`;
        io.stdout.write(`${name} answered in ${latencyMs.toFixed(1)} ms${shown}\n`);
      }
      return EXIT.completed;
    } catch (error) {
      io.stderr.write(`treadle: ${exactLine(messageOf(error))}\n`);
      return EXIT.failed;
    } finally {
      await edge.close();
    }
  },
});

const callCommand: Command = defineCommand({
  name: 'edge call',
  summary: 'Execute one call of a tool of a device under the policy, and print its result',
  arguments: ['NAME', 'TOOL', '[JSON]'],
  flags: {
    ...YES_FLAG,
    json: { type: 'switch', help: 'Print the whole result as JSON' },
    ...LOG_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'JSON has the arguments; default: {}. "-" reads them from standard input. On a terminal, the policy can ask; elsewhere a call\n' +
      'that it asks about is denied, unless --yes is given. Nothing is stored.',
    CALL_EXIT_CODES,
  ],
  examples: [`treadle edge call living-room-pi bash '{"command": "vcgencmd measure_temp"}' --yes`],
  async run({ values, arguments: [name = '', wanted = '', given = '{}'] }, io) {
    const context = await resolveContext(values, io);
    const device = await openDeviceSession(context, io.env, name);
    try {
      const tool = device.tools.find((one) => one.name === wanted);
      if (!tool) {
        const names = device.tools.map((one) => one.name);
        throw new CommandError(
          `The device ${name} has no tool ${JSON.stringify(wanted)}.${didYouMean(wanted, names)} Tools: ${names.join(', ') || 'none'}.`,
        );
      }
      return await callOnce({ tool, given, context, values, io, place: device.place });
    } finally {
      await device.close();
    }
  },
});

const logsCommand: Command = defineCommand({
  name: 'edge logs',
  summary: 'Print what the devices publish, as it happens',
  arguments: ['[NAME]'],
  flags: CONFIG_FLAGS,
  notes: [
    'NAME is a device; default: all. Prints one JSON line for each status, report and command, until Ctrl-C. The results of calls\n' +
      'may contain what tools have read.',
  ],
  examples: ['treadle edge logs', 'treadle edge logs living-room-pi'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    if (name !== undefined) checkDevice(context, name);
    const edge = await connectEdge({ context, env: io.env, readsCommands: true });
    const stop = catchStopSignal(io);
    const stopWatching = edge.link.watch((seen) => {
      if (name !== undefined && seen.device !== name) return;
      io.stdout.write(`${JSON.stringify({ time: new Date().toISOString(), ...seen })}\n`);
    });
    try {
      await stop.received;
      return EXIT.completed;
    } finally {
      stopWatching();
      stop.release();
      await edge.close();
    }
  },
});

export const edgeGroup: CommandGroup = {
  name: 'edge',
  summary: SUMMARIES.edge,
  commands: [listCommand, pingCommand, callCommand, logsCommand],
  default: edgeCommand,
  notes: [
    '"treadle edge" without a command runs the tools of this machine for an orchestrator, with --config FILE (default:\n' +
      'edge.toml), --broker URL and --id NAME. The commands are for the orchestrator, with [edge] of treadle.toml.',
  ],
};
