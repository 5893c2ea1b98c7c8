import type { Tool } from '@treadle/core';
import type { Analysers } from '@treadle/core/policy';
import { CommandError } from '../command-line/command.ts';
import type { CommandContext } from '../config/context.ts';
import type { Io } from '../terminal/io.ts';
import { checkDevice, connectEdge } from './open-edge.ts';

/** A device whose tools a run of the command has. */
export interface DeviceSession {
  readonly name: string;
  readonly tools: readonly Tool[];
  /** What a policy can find out about the device. */
  readonly place: NonNullable<Analysers['place']>;
  close(): Promise<void>;
}

const READY_MS = 2_000;

/** The label of runs with the tools of a device, for those who resume them. */
export const DEVICE_LABEL = 'device';

/** Throws if the device is not configured, or not online: nobody would know its tools. */
export async function openDeviceSession(context: CommandContext, env: Io['env'], name: string): Promise<DeviceSession> {
  checkDevice(context, name);
  const edge = await connectEdge({ context, env });
  const { link } = edge;
  if (!(await link.whenReady(name, READY_MS))) {
    const { status = 'unknown' } = link.device(name) ?? {};
    await edge.close();
    throw new CommandError(
      `The device ${name} is ${status === 'unknown' ? 'not connected to the broker' : status}. Start it with "treadle edge" ` +
        `on the device, and see "treadle edge list".`,
    );
  }
  const { devicePlaces, deviceTools } = await import('@treadle/edge');
  const isOff = context.loaded.config.orchestrator?.tool_loop_enabled === false;
  return { name, tools: isOff ? [] : deviceTools(link, name), place: devicePlaces(link), close: () => edge.close() };
}
