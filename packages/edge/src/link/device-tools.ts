import { createHash } from 'node:crypto';
import {
  isDetached,
  Parked,
  stableJson,
  tool,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type Touch,
  type Verification,
} from '@treadle/core';
import type { Place } from '@treadle/core/policy';
import { codingTools, local } from '@treadle/tools';
import { cleanSchema, cleanText } from '@treadle/tools/described-tools';
import { filterToolsByCapabilities, touchesFrom } from '@treadle/tools/packages';
import { builtInTools } from '../device/tools.ts';
import type { OfferedTool } from '../protocol/capabilities.ts';
import type { Fields } from '../protocol/message.ts';
import { reportFrom } from '../protocol/report.ts';
import { deviceOps, WAIT_MS } from './device-ops.ts';
import { EdgeError, NO_BROKER, type DeviceView, type EdgeLink, type ReceivedReport, type Reported } from './link.ts';
import { offlineOutput, otherLedgerOutput, outputOf, type ReportedCall } from './results.ts';

/*
 * The tools of a device as tools of the loop.
 *
 * 1. `execute` publishes a command under the key of the call, and waits for the report. The device's own time is shorter than
 *    the one here, so that its answer wins.
 * 2. `verify` asks the device what became of a call. A call that the device never began may run; one that it has ended has its
 *    result; one that runs is waited for. Without an answer it is unknown.
 *    A call that is given up is cancelled on the device, unless its run is only detached.
 * 3. While the device is away, a call fails at once, or is parked until the device is back. A parked call is sent again under
 *    its key, which the device executes at most once.
 * 4. A `once` call is for one ledger: the id of that which the device had when the model called the tool is in the journal
 *    (`recipient`). Another ledger has not executed the call, and says nothing about the first: the effect is unknown.
 * 5. What a call touches is on the device, whatever the device says. A call always touches the device.
 */

/** How much longer the call is waited for here than on the device. */
const MARGIN_MS = 3_000;
const TIMEOUT_MS = 30_000;
/** A question about a call. */
const QUERY_MS = 5_000;
/** When a run is resumed to ask about a device that is away: soon at first, later less often. */
const FIRST_WAKE_MS = 5_000;
const MAX_WAKE_MS = 5 * 60_000;

export interface DeviceToolsOptions {
  /** Put in front of the names; default nothing. */
  readonly prefix?: string;
  readonly now?: () => number;
}

/** The tools that a device offers now. Those that cannot be used are left out. */
export function deviceTools(
  link: EdgeLink,
  name: string,
  { prefix = '', now = Date.now }: DeviceToolsOptions = {},
): readonly Tool[] {
  const { capabilities } = link.device(name) ?? {};
  const { tools = [], builtIns } = link.optionsOf(name);
  const isOps = builtIns === 'ops' && capabilities?.ops !== undefined;
  const offered = (capabilities?.tools ?? tools).filter(({ builtin }) => !isOps || builtin !== true);
  const own = offered.flatMap((one) => {
    try {
      return [deviceTool(link, name, one, { prefix, now })];
    } catch {
      // Its schema is too large, or has invisible characters.
      return [];
    }
  });
  return isOps ? [...operatingTools(link, name, prefix), ...own] : own;
}

/** The built-in tools of this side, with the files and programs of the device. */
function operatingTools(link: EdgeLink, device: string, prefix: string): readonly Tool[] {
  const { capabilities = [] } = link.device(device)?.capabilities ?? {};
  const all = filterToolsByCapabilities(codingTools(deviceOps(link, device)), capabilities);
  return all
    .filter(({ name }) => !name.startsWith('todo'))
    .map((one) => ({
      ...one,
      name: `${prefix}${one.name}`,
      description: `${one.description}\n\n(On the device "${device}".)`,
      ...(one.touches && { touches: (input) => placedOn(device, () => one.touches!(input)) }),
    }));
}

function deviceTool(link: EdgeLink, device: string, offered: OfferedTool, options: Required<DeviceToolsOptions>): Tool {
  const { description, effect = 'once', permissions = [], sandbox } = offered;
  const parameters = cleanSchema(offered.parameters, 'input');
  const builtIn = offered.builtin === true ? builtInOf(offered) : undefined;
  const limit = limitOf(link, device, offered, builtIn);
  const call = (input: unknown, context: ToolContext): Call => ({
    link,
    device,
    offered,
    input: input as Fields,
    context,
    timeoutMs: limit(input as Fields),
    now: options.now,
  });
  return tool({
    name: `${options.prefix}${offered.name}`.slice(0, 64),
    description: `${cleanText(description)}\n\n(A tool of the device "${device}".)`,
    input: parameters,
    effect,
    permissions,
    fingerprint: fingerprintOf(device, offered),
    timeoutMs: (input) => limit(input) + MARGIN_MS,
    touches: (input) => touchesOf(device, offered, builtIn, input),
    // What it touches says what it exposes. Otherwise anybody may have written what it returns.
    ...(!builtIn && !offered.touches && { exposes: 'outside' as const }),
    ...(sandbox && sandbox.length > 0 && { sandbox: () => (isHere(link.device(device)) ? sandbox : []) }),
    recipient: () => link.device(device)?.ledger,
    verify: (input, context) => verifyCall(call(input, context)),
    execute: (input, context) => executeCall(call(input, context)),
  });
}

/** The definition of a built-in tool, if it is the same here. */
function builtInOf({ name, parameters }: OfferedTool): Tool | undefined {
  known ??= new Map(builtInTools(local('/')).map((one) => [one.name, one]));
  const own = known.get(name);
  return own && stableJson(own.parameters) === stableJson(parameters) ? own : undefined;
}

let known: ReadonlyMap<string, Tool> | undefined;

/** The time that the device has for a call. */
function limitOf(
  link: EdgeLink,
  device: string,
  offered: OfferedTool,
  builtIn: Tool | undefined,
): (input: Fields) => number {
  const { timeoutMs: usual = TIMEOUT_MS } = link.optionsOf(device);
  const { timeout_ms: own = usual, parameters } = offered;
  const asked = (
    (parameters['properties'] ?? {}) as Readonly<Record<string, { readonly maximum?: number } | undefined>>
  )['timeout_ms'];
  return (input) => {
    if (typeof builtIn?.timeoutMs === 'function') return Math.max(own, builtIn.timeoutMs(input));
    const { timeout_ms: given } = input;
    return asked && typeof given === 'number' && given > 0 ? Math.min(given, asked.maximum ?? 300_000) : own;
  };
}

/** What a run has recorded of a tool. */
export type RecordedTool = Pick<Tool, 'name' | 'description' | 'parameters' | 'effect'> & {
  readonly fingerprint?: string;
};

/**
 * The tools of a device that a run has recorded, while nobody has heard of the device: calls that the run has made before are asked
 * about, or wait. What a call touches is unknown, so the run makes no further ones.
 */
export function recordedDeviceTools(
  link: EdgeLink,
  device: string,
  recorded: readonly RecordedTool[],
): readonly Tool[] {
  const start = fingerprintStart(device);
  return recorded.flatMap(({ name, description, parameters, effect, fingerprint = '' }): readonly Tool[] => {
    if (!fingerprint.startsWith(start)) return [];
    const [own = name] = fingerprint.slice(start.length).split(' ');
    const offered = { name: own, description, parameters, effect };
    const { recipient: _, ...made } = deviceTool(link, device, offered, { prefix: '', now: Date.now });
    const execute = (input: unknown, context: ToolContext): unknown =>
      context.recipient === undefined
        ? offlineOutput({ device, tool: own }, false, 'nobody has heard of it since the run was resumed')
        : made.execute!(input, context);
    return [{ ...made, name, description, fingerprint, execute }];
  });
}

function fingerprintStart(device: string): string {
  return `device:${device} `;
}

/** It names the device and the tool, for runs that are resumed while the device is away. */
function fingerprintOf(device: string, { fingerprint, ...offered }: OfferedTool): string {
  const { name, description, parameters, effect, touches, permissions } = offered;
  const whole = { device, name, description, parameters, effect, touches, permissions, fingerprint };
  return `${fingerprintStart(device)}${name} ${createHash('sha256').update(stableJson(whole)).digest('hex')}`;
}

function touchesOf(
  device: string,
  { touches }: OfferedTool,
  builtIn: Tool | undefined,
  input: Fields,
): readonly Touch[] {
  return placedOn(device, () =>
    builtIn?.touches ? builtIn.touches(input) : touches?.every(hasField) ? touchesFrom(touches, input) : undefined,
  );
}

const FIELDS: Readonly<Record<string, string>> = {
  read: 'path',
  write: 'path',
  command: 'command',
  url: 'url',
  session: 'session',
};

function hasField(template: Readonly<Record<string, string>>): boolean {
  return Object.hasOwn(template, FIELDS[template['type']!]!);
}

/** `touches` returns undefined, or throws, if it is unknown what is touched. The device always is. */
function placedOn(device: string, touches: () => readonly Touch[] | undefined): readonly Touch[] {
  const on: Place = { type: 'device', name: device };
  let own: readonly Touch[] | undefined;
  try {
    own = touches();
  } catch {
    own = undefined;
  }
  const placed = (own ?? [{ type: 'unknown' } as const]).map((touch): Touch =>
    touch.type === 'unknown' || touch.type === 'device' ? touch : { ...touch, on },
  );
  return [{ type: 'device', device }, ...placed];
}

function isHere(view: DeviceView | undefined): boolean {
  return view?.status === 'online' || (view?.isPlain === true && view.status === 'unknown');
}

interface Call {
  readonly link: EdgeLink;
  readonly device: string;
  readonly offered: OfferedTool;
  readonly input: Fields;
  readonly context: ToolContext;
  readonly timeoutMs: number;
  readonly now: () => number;
}

async function executeCall(call: Call): Promise<ToolOutput | Parked> {
  const { link, device, offered } = call;
  // After a start nobody has been heard yet.
  if (link.device(device)?.status === 'unknown') await link.whenReady(device, QUERY_MS);
  if (!link.isConnected && !(await link.whenConnected(QUERY_MS)))
    return awayOutput(call, { wasSent: false, reason: NO_BROKER });
  const view = link.device(device);
  if (!isHere(view)) return awayOutput(call, { wasSent: false, reason: view?.reason });
  const requestId = call.context.key;
  const at = call.now();
  link.noteCall(device, { requestId, tool: offered.name, at });
  const ledger = isOnce(call) ? view?.ledger : undefined;
  const reported = await sendCall(call, ledger);
  const result = reported.type === 'report' ? (reported.report.error_type ?? 'success') : reported.type;
  link.noteCall(device, { requestId, tool: offered.name, at, elapsedMs: call.now() - at, result });
  return outputOfReported(call, reported, ledger);
}

/** Others may run again, on whatever ledger. */
function isOnce({ offered: { effect = 'once' } }: Call): boolean {
  return effect === 'once';
}

/** `ledger`: which one may execute it. Undefined: any. */
async function sendCall(call: Call, ledger: string | undefined): Promise<Reported> {
  const { link, device, offered, input, context, timeoutMs } = call;
  const payload = { tool: offered.name, parameters: input, timeout_ms: timeoutMs, stream: true };
  const reported = await link.send(
    device,
    { type: 'tool', payload, requestId: context.key, ledger },
    {
      // The loop ends the call. This only makes sure that nothing is left behind.
      timeoutMs: timeoutMs + MARGIN_MS * 2,
      expiresMs: timeoutMs,
      signal: context.signal,
      onProgress: context.report,
    },
  );
  // Of a run that is only detached, somebody else asks for the result.
  if (reported.type === 'timeout' || (reported.type === 'aborted' && !isDetached(context.signal))) cancelCall(call);
  return reported.type === 'report' ? whole(call, reported.report) : reported;
}

/** The report itself, if the device has sent only where it is. It is acknowledged when it is here. */
async function whole({ link, device, context }: Call, report: ReceivedReport): Promise<Reported> {
  const { result_blob: blob } = report;
  if (!blob) return { type: 'report', report };
  try {
    const fetched = await link.fetchReport(device, blob, context.signal);
    link.acknowledge(device, context.key);
    return { type: 'report', report: fetched };
  } catch (error) {
    if (!(error instanceof EdgeError)) throw error;
    const { code, message } = error;
    if (code === 'closed') return { type: 'aborted' };
    if (code === 'offline' || code === 'timeout') return { type: 'offline', reason: 'its result was not fetched' };
    const lost = `The call has ended, but its result cannot be read: ${message}`;
    return { type: 'report', report: { status: 'error', error: lost, error_type: 'interrupted' } };
  }
}

/**
 * Best effort: the device ends it, or never starts it. One of the original protocol does not know the command, and what it
 * answers could be taken for the report of the call.
 */
function cancelCall({ link, device, context }: Call): void {
  if (link.device(device)?.isPlain) return;
  link.ask(device, { type: 'cancel', payload: { target: context.key } }).catch(() => {});
}

function outputOfReported(call: Call, reported: Reported, ledger: string | undefined): ToolOutput | Parked {
  switch (reported.type) {
    case 'report':
      return outputOf(reported.report, reportedCall(call));
    case 'offline':
      return awayOutput(call, { wasSent: true, reason: reported.reason, ledger });
    case 'other-ledger':
      return otherLedgerOutput({ device: call.device, tool: call.offered.name });
    case 'timeout':
    case 'aborted':
      return offlineOutput({ device: call.device, tool: call.offered.name }, true, 'it did not answer');
    default:
      return reported satisfies never;
  }
}

function reportedCall({ link, device, offered, input, timeoutMs }: Call): ReportedCall {
  const published = link.device(device)?.capabilities?.tools;
  // A device of the original design says of a tool that it does not have it.
  const tools = published ?? link.optionsOf(device).tools?.filter(({ name }) => name !== offered.name) ?? [];
  const { name: toolName, parameters, permissions = [], timeout_ms: usual = timeoutMs } = offered;
  // The time that the tool itself has. The call has a little more.
  const { timeout_ms: asked } = input;
  const limitMs = Math.min(timeoutMs, typeof asked === 'number' ? asked : usual);
  return {
    device,
    tool: toolName,
    input,
    parameters,
    permissions,
    timeoutMs: limitMs,
    available: tools.map(({ name }) => name),
  };
}

interface Away {
  readonly wasSent: boolean;
  readonly reason: string | undefined;
  /** To which it was sent. */
  readonly ledger?: string | undefined;
}

/** The device is away: the call fails, or waits until it is back. */
function awayOutput(call: Call, { wasSent, reason, ledger }: Away): ToolOutput | Parked {
  const { link, device, offered, context } = call;
  const { onOffline = 'error' } = link.optionsOf(device);
  // The journal does not say who got it, so it could not be asked about.
  const isLost = wasSent && ledger !== undefined && ledger !== context.recipient;
  if (isLost || (onOffline === 'error' && !context.parked))
    return offlineOutput({ device, tool: offered.name }, wasSent, reason);
  return parkedCall(call);
}

/** `ledger`: who will get it, if the call itself does not say. `isDue`: the run goes on at once. */
function parkedCall(call: Call, { ledger = boundLedger(call), isDue = false } = {}): Parked {
  const { link, device, context, now } = call;
  const { waitMs = WAIT_MS } = link.optionsOf(device);
  const expiresAt = context.parked?.expiresAt ?? now() + waitMs;
  const waited = Math.max(0, now() - (expiresAt - waitMs));
  const wakeAt = isDue ? now() : now() + Math.min(MAX_WAKE_MS, Math.max(FIRST_WAKE_MS, waited / 2));
  const on = `device:${device}`;
  const bound = ledger === undefined || ledger === context.recipient ? on : `${on} ${ledger}`;
  return new Parked(bound, [], { expiresAt, wakeAt: Math.min(wakeAt, expiresAt) });
}

/** The ledger that the journal says the call is for. */
function boundLedger({ context: { recipient, parked } }: Call): string | undefined {
  return recipient ?? parked?.on.split(' ')[1];
}

/** What became of a call: after a crash, after a timeout, or because it is parked. */
async function verifyCall(call: Call): Promise<Verification> {
  const { link, device, context } = call;
  if (link.device(device)?.status === 'unknown') await link.whenReady(device, QUERY_MS);
  const view = link.device(device);
  const bound = boundLedger(call);
  const isUnbound = bound === undefined && (view?.status === 'unknown' || view?.ledger !== undefined);
  if (!isHere(view)) return isUnbound && !context.parked ? { type: 'unknown' } : awayVerification(call);
  if (view?.capabilities?.ledger !== true) return { type: 'unknown' };
  if (context.parked) {
    // It was never sent. Before it is, the journal says to whom.
    if (isUnbound) return parkedCall(call, { ledger: view.ledger, isDue: true });
    // The device executes it once: this is a question, and a command if the answer is that it never began.
    return settledBy(call, await sendCall(call, bound));
  }
  const answer = await askAbout(call, bound);
  switch (answer['state']) {
    case 'away':
      return isUnbound ? { type: 'unknown' } : awayVerification(call);
    case 'other-ledger':
      return settledBy(call, { type: 'other-ledger' });
    case 'unknown':
      return { type: isUnbound ? 'unknown' : 'not-done' };
    case 'queued':
    case 'running':
      return settledBy(call, await sendCall(call, bound ?? view.ledger));
    case 'done':
    case 'interrupted':
    case 'cancelled': {
      const decoded = reportFrom((answer['report'] ?? {}) as Fields);
      if (decoded.type !== 'result') return { type: 'unknown' };
      return settledBy(call, await whole(call, decoded.report));
    }
    // `forgotten`: it has ended, and nobody knows its result.
    default:
      return { type: 'unknown' };
  }
}

/** The answer to `query`, or `away` and `other-ledger` as its state. */
async function askAbout({ link, device, context }: Call, ledger: string | undefined): Promise<Fields> {
  const question = { type: 'query', payload: { target: context.key }, ledger } as const;
  try {
    return (await link.ask(device, question, { timeoutMs: QUERY_MS })) as Fields;
  } catch (error) {
    const isOther = (error as { readonly errorType?: unknown }).errorType === 'other_ledger';
    return { state: isOther ? 'other-ledger' : 'away' };
  }
}

function awayVerification(call: Call): Verification {
  const { onOffline = 'error' } = call.link.optionsOf(call.device);
  return call.context.parked || onOffline === 'wait' ? parkedCall(call) : { type: 'unknown' };
}

async function settledBy(call: Call, reported: Reported): Promise<Verification> {
  const { link, device, context, offered } = call;
  // Also of a parked call, which would stay parked with `unknown`.
  if (reported.type === 'other-ledger')
    return { type: 'done', result: otherLedgerOutput({ device, tool: offered.name }) };
  if (reported.type !== 'report') return awayVerification(call);
  link.acknowledge(device, context.key);
  const { error_type: type } = reported.report;
  // It did not begin, and may be tried again while the call is parked.
  if (context.parked && (type === 'busy' || type === 'expired')) return parkedCall(call);
  return { type: 'done', result: outputOf(reported.report, reportedCall(call)) };
}
