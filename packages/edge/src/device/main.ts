#!/usr/bin/env node
import { parseArgs } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import type { AgentLogLine } from './agent.ts';
import type { DeviceConfig } from './config.ts';

// The optimizing compiler takes 5 MB once it has run, be it only for what finds the modules below. Calls are as fast without it.
setFlagsFromString('--no-opt');
const [{ DeviceConfigError, loadDeviceConfig }, { openDevice }] = await Promise.all([
  import('./config.ts'),
  import('./run-device.ts'),
]);

const HELP = `Runs the tools of this device for an orchestrator, over MQTT.

Usage: treadle-edge [--config FILE] [--broker URL] [--id NAME]

  --config FILE  its configuration; default: edge.toml
  --broker URL   the broker; default: [edge] broker, or mqtt://127.0.0.1:1883
  --id NAME      the name of the device; default: [agent] id, or the name of the host

Prints one line when it is ready, and the log as JSON lines to standard error. Ctrl-C or SIGTERM: it takes nothing new, waits
for what runs, and ends. Exit codes: 0 it was stopped, 1 it could not start, 2 its configuration is invalid.
`;

process.exitCode = await main();

async function main(): Promise<number> {
  let config: DeviceConfig;
  try {
    const { values } = parseArgs({
      options: {
        config: { type: 'string' },
        broker: { type: 'string' },
        id: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    const { help: _, ...flags } = values;
    config = await loadDeviceConfig(flags, { cwd: process.cwd(), env: process.env });
  } catch (error) {
    const isUsage = (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS') === true;
    if (!isUsage && !(error instanceof DeviceConfigError) && !(error instanceof TypeError)) throw error;
    process.stderr.write(`treadle-edge: ${(error as Error).message}\n`);
    return 2;
  }
  const stopped = Promise.withResolvers<void>();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopped.resolve());
  // It was started by a process that has ended.
  process.once('disconnect', () => stopped.resolve());
  try {
    const agent = await openDevice({ config, log, onShutdown: () => stopped.resolve() });
    process.stdout.write(`Device ${agent.id} is ready\n`);
    await stopped.promise;
    await agent.close(config.graceMs);
    return 0;
  } catch (error) {
    process.stderr.write(`treadle-edge: ${(error as Error).message}\n`);
    return 1;
  }
}

function log({ level, message, ...fields }: AgentLogLine): void {
  process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), level, message, ...fields })}\n`);
}
