import type { Principal, Tool, ToolContext } from '@treadle/core';
import { deviceTools, recordedDeviceTools, type RecordedTool } from './device-tools.ts';
import type { DeviceView, EdgeLink } from './link.ts';

/** The label of a device in requests: `{ type: 'mcp', server_label: 'device:NAME' }`. */
const LABEL = 'device:';
/** For a device that has just been started. */
const READY_MS = 3_000;

type RequestTool = { readonly type: string; readonly [field: string]: unknown };

/** Runs the tools of devices for the requests of a server: an element of `executors` of `treadleServer`. */
export interface DeviceExecutor {
  readonly kind: 'mcp';
  readonly lists: true;
  canExecute(tool: RequestTool): boolean;
  functions(tool: RequestTool, asker: Principal): Promise<readonly Tool[]>;
  recorded(tool: RequestTool, recorded: readonly RecordedTool[]): readonly Tool[];
  defaults(asker: Principal, recorded?: readonly RecordedTool[]): Promise<readonly RequestTool[]>;
  execute(call: { readonly input: unknown; readonly offered: object }, context: ToolContext): unknown;
  follow(tool: RequestTool, change: (tools: readonly Tool[]) => Promise<void>): () => void;
}

export interface DeviceExecutorOptions {
  /** Devices whose tools every request of their tenant has, unless nothing has been heard of them; default none. */
  readonly defaults?: readonly string[];
}

/** Each tenant can use its own devices only. To others they do not exist. */
export function deviceExecutor(link: EdgeLink, { defaults = [] }: DeviceExecutorOptions = {}): DeviceExecutor {
  // After a start, devices have a moment to be heard. Later no request waits for one that is not there.
  let areHeard: Promise<unknown> | undefined;
  return {
    kind: 'mcp',
    lists: true,
    canExecute: ({ server_label: label }) => typeof label === 'string' && label.startsWith(LABEL),
    async functions(tool, { tenant }) {
      const name = deviceOf(tool);
      const { isPlain, status, capabilities } = usableDevice(link, name, tenant);
      // The calls of a device that is away fail or wait, each as it is configured.
      const isKnown = isPlain || (capabilities !== undefined && status !== 'unknown');
      if (isKnown || (await link.whenReady(name, READY_MS))) return deviceTools(link, name);
      throw new Error(`The device ${JSON.stringify(name)} is not online.`);
    },
    recorded: (tool, recorded) => recordedDeviceTools(link, deviceOf(tool), recorded),
    async defaults({ tenant }, recorded = []) {
      const offered = (): readonly DeviceView[] => link.devices().filter(({ name }) => defaults.includes(name));
      areHeard ??= Promise.all(offered().map(({ name }) => link.whenReady(name, READY_MS)));
      if (!offered().some((one) => one.tenant === tenant)) return [];
      await areHeard;
      const isRecorded = (name: string): boolean => recordedDeviceTools(link, name, recorded).length > 0;
      return offered()
        .filter(({ tenant: of }) => of === tenant)
        .filter((one) => one.isPlain || one.capabilities !== undefined || isRecorded(one.name))
        .map(({ name }) => ({ type: 'mcp', server_label: `${LABEL}${name}` }));
    },
    execute: ({ input, offered }, context) => (offered as Tool).execute!(input, context),
    follow(tool, change) {
      const name = deviceOf(tool);
      let known = fingerprintsOf(deviceTools(link, name));
      return link.onChange((changed) => {
        if (changed !== name) return;
        const tools = deviceTools(link, name);
        const now = fingerprintsOf(tools);
        // A device that is away keeps its tools: its calls say that it is.
        if (now === known || tools.length === 0) return;
        known = now;
        void change(tools).catch(() => {});
      });
    },
  };
}

function deviceOf({ server_label: label }: RequestTool): string {
  return String(label).slice(LABEL.length);
}

/** Throws if the tenant has no such device. */
export function usableDevice(link: EdgeLink, name: string, tenant: string): DeviceView {
  const found = link.device(name);
  if (found?.tenant === tenant) return found;
  const names = link.devices().flatMap((one) => (one.tenant === tenant ? [one.name] : []));
  throw Object.assign(
    new Error(`There is no device ${JSON.stringify(name)}. Devices: ${names.join(', ') || 'none'}.`),
    { code: 'unknown-device' },
  );
}

function fingerprintsOf(tools: readonly Tool[]): string {
  return tools.map(({ name, fingerprint }) => `${name} ${fingerprint}`).join('\n');
}
