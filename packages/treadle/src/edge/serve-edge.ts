import { messageOf, type Tool } from '@treadle/core';
import type { Analysers } from '@treadle/core/policy';
import type { DeviceExecutor, EdgeLink, EdgeLogLine, EdgePrompt } from '@treadle/edge';
import { CommandError } from '../command-line/command.ts';
import type { Config } from '../config/config.ts';
import type { CommandContext } from '../config/context.ts';
import type { EdgeConfig } from '../config/edge.ts';
import type { Io } from '../terminal/io.ts';
import { openEdge, type OpenEdge } from './open-edge.ts';
import { promptAnswers, type PromptAnswers, type PromptOptions } from './prompts.ts';

/** The devices of a server. */
export interface ServerEdge {
  readonly link: EdgeLink;
  /** `defaults`: devices whose tools every request has. */
  offer(config: Config, defaults: readonly string[]): DeviceOffer;
  readonly place: NonNullable<Analysers['place']>;
  /** Lines for the user. */
  readonly notices: readonly string[];
  /** What answers messages that come over MQTT. Before that they are refused. */
  answerPrompts(with_: PromptOptions): void;
  close(): Promise<void>;
}

/** What requests can use of the devices. */
interface DeviceOffer {
  readonly executor: DeviceExecutor;
  /** The tool that lists devices. */
  readonly tools: readonly Tool[];
}

const DEMO_DEVICE = 'demo-device';
/** For its process to start. */
const DEMO_MS = 10_000;

interface ServerEdgeOptions {
  readonly context: CommandContext;
  readonly env: Io['env'];
  readonly log: (line: EdgeLogLine) => void;
  readonly withDemo: boolean;
}

/** Undefined: there are no devices. A broker runs only with [edge] or a demo device. */
export async function openServerEdge({
  context,
  env,
  log,
  withDemo,
}: ServerEdgeOptions): Promise<ServerEdge | undefined> {
  const { edge: configured } = context.loaded.config;
  if (!configured && !withDemo) return undefined;
  if (withDemo) checkDemo(configured ?? {});
  let prompts: PromptAnswers | undefined;
  const opened = await openEdge({
    context: withDemo ? withDemoDevice(context) : context,
    env,
    log,
    startsBroker: true,
    onPrompt: (prompt) => (prompts ? prompts.answer(prompt) : refuse(prompt)),
  });
  const { link, broker } = opened;
  const { deviceExecutor, devicePlaces, nodesTool } = await import('@treadle/edge');
  let demo: StartedDemo | undefined;
  try {
    demo = withDemo ? await startDemo(opened, log) : undefined;
  } catch (error) {
    await opened.close();
    throw error;
  }
  return {
    link,
    offer({ orchestrator }, defaults) {
      const executor = withApiErrors(deviceExecutor(link, { defaults }));
      return orchestrator?.tool_loop_enabled === false
        ? { executor: withoutTools(executor), tools: [] }
        : { executor, tools: [nodesTool(link)] };
    },
    place: devicePlaces(link),
    notices: [
      ...(broker ? [`The MQTT broker for devices listens on ${broker.url}`] : []),
      ...(demo ? [demo.notice] : []),
    ],
    answerPrompts(given) {
      prompts = promptAnswers(link, given);
    },
    async close() {
      await prompts?.close();
      await demo?.close();
      await opened.close();
    },
  };
}

/** It has no password and no certificate. */
function checkDemo({ broker = 'embedded', cert, devices = {} }: EdgeConfig): void {
  if (broker !== 'embedded')
    throw new CommandError('--demo-device needs the embedded broker, and edge.broker names another one.');
  if (cert === undefined && Object.values(devices).every(({ password_env: variable }) => variable === undefined))
    return;
  throw new CommandError(
    '--demo-device needs a broker without certificates and passwords. Start it in a folder without this configuration.',
  );
}

/** Calls that a run has made before are still asked about. */
function withoutTools(executor: DeviceExecutor): DeviceExecutor {
  return { ...executor, functions: async () => [], defaults: async () => [], follow: () => () => {} };
}

/** A request for a device that the caller does not have is refused. */
function withApiErrors(executor: DeviceExecutor): DeviceExecutor {
  return {
    ...executor,
    async functions(tool, asker) {
      try {
        return await executor.functions(tool, asker);
      } catch (error) {
        if ((error as { readonly code?: unknown }).code !== 'unknown-device') throw error;
        const { ApiError } = await import('@treadle/server');
        throw new ApiError(404, 'not_found_error', messageOf(error), { param: 'tools', code: 'device_not_found' });
      }
    },
  };
}

/** The same configuration with a device more. Without [edge] the broker is on any free port, and only for it. */
export function withDemoDevice(context: CommandContext): CommandContext {
  const { loaded } = context;
  const { edge = { port: 0 } } = loaded.config;
  const devices = { ...edge.devices, [DEMO_DEVICE]: {} };
  return { ...context, loaded: { ...loaded, config: { ...loaded.config, edge: { ...edge, devices } } } };
}

interface StartedDemo {
  /** For the user. */
  readonly notice: string;
  close(): Promise<void>;
}

/** Starts the device, and waits until it can be used: nothing can be tried before. */
async function startDemo({ broker, link }: OpenEdge, log: (line: EdgeLogLine) => void): Promise<StartedDemo> {
  const { startDemoDevice } = await import('@treadle/edge/device');
  const onLog = (line: string): void => log({ level: 'info', message: 'demo device', line });
  const demo = await startDemoDevice({ broker: broker!.url, prefix: link.prefix, id: DEMO_DEVICE, onLog });
  const isReady = await Promise.race([link.whenReady(DEMO_DEVICE, DEMO_MS), demo.ended.then(() => false)]);
  return {
    notice: isReady
      ? `The device ${DEMO_DEVICE} is ready. Try: "take the temperature of the demo device"`
      : `The device ${DEMO_DEVICE} is not ready yet. The log says more.`,
    close: () => demo.close(),
  };
}

function refuse(prompt: EdgePrompt): void {
  void prompt.reply({ status: 'error', error: 'The orchestrator is starting. Try again.', error_type: 'busy' });
}
