import { createHash, randomUUID } from 'node:crypto';
import { isDetached, systemClock, type Clock } from '@treadle/core';
import { mqttClient, type MqttClient, type MqttOptions } from '../mqtt/client.ts';
import { capabilitiesFrom, decodeCapabilities, type Capabilities, type OfferedTool } from '../protocol/capabilities.ts';
import { decodeCommand, encodeCommand, MAX_PART_BYTES, type KnownCommand } from '../protocol/command.ts';
import { isFields, MAX_MESSAGE_BYTES, parseMessage, type Fields } from '../protocol/message.ts';
import {
  decodeReport,
  encodeReport,
  reportFrom,
  type BlobReference,
  type DecodedReport,
  type ResultReport,
} from '../protocol/report.ts';
import { decodeStatus } from '../protocol/status.ts';
import { isDeviceId, topicsOf, type Topics } from '../protocol/topics.ts';

/*
 * The orchestrator's side: it knows its devices, sends commands, and gives each report to whoever waits for it.
 *
 * 1. A wait is registered before its command is published, and removed when it is settled: nothing is left behind.
 * 2. A report is matched by its request id. One that nobody waits for is dropped: it is late, or a duplicate.
 * 3. A command without a report is sent again when this side or the device connects again: a device with a ledger executes it
 *    once. To a device without one it is never sent again, and there is one call at a time: its reports may have no id.
 *    A device with another ledger than that which a command is for does not get it: the wait is settled.
 * 4. A result is acknowledged when it was given to whoever waited for it.
 * 5. Messages of devices that are not configured are dropped.
 * 6. A broker that has crashed did not publish wills, and may have kept old statuses. A status that it had kept, and all after it was
 *    away, are checked: a device that does not answer is offline until something is heard of it. So is every device while there is
 *    no broker.
 */

export interface EdgeOptions {
  readonly prefix: string;
  readonly broker: Pick<MqttOptions, 'url' | 'tls' | 'username' | 'password' | 'keepAliveMs' | 'protocol'>;
  readonly devices: readonly DeviceOptions[];
  /** How long a device may be away before its calls are settled, because it may be back at once; default 1 second. */
  readonly offlineGraceMs?: number;
  /** A message of a person that came over MQTT. Absent: they are ignored. */
  readonly onPrompt?: (prompt: EdgePrompt) => void;
  /** `watch` is called with commands too, also those of others; default: only if prompts are answered. */
  readonly readsCommands?: boolean;
  readonly clock?: Clock;
  readonly random?: () => number;
  readonly log?: (line: EdgeLogLine) => void;
}

export interface DeviceOptions {
  readonly name: string;
  /** Whose runs may use it; default `default`. */
  readonly tenant?: string;
  /** What becomes of a call while the device is away: it fails at once, or waits; default `error`. */
  readonly onOffline?: 'error' | 'wait';
  /** How long a call waits; default one hour. */
  readonly waitMs?: number;
  /** Of a call whose tool says nothing else; default 30 seconds. */
  readonly timeoutMs?: number;
  /**
   * Where its built-in tools run: on the device, or here, with its files and programs (`ops`). Those here keep what a run knows,
   * such as which files it has read; those there send less. Default `device`.
   */
  readonly builtIns?: 'device' | 'ops';
  /** The tools of a device of the original protocol, which does not publish them. */
  readonly tools?: readonly OfferedTool[];
}

export interface EdgePrompt {
  readonly device: string;
  readonly requestId: string;
  readonly text: string;
  readonly conversation: string | undefined;
  /** Publishes the answer on the reports of the device. */
  reply(report: Pick<ResultReport, 'status' | 'result' | 'error' | 'error_type'>): Promise<void>;
}

export interface EdgeLogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly [field: string]: unknown;
}

/** What is known about a device. */
export interface DeviceView {
  readonly name: string;
  readonly tenant: string;
  /** `unknown`: nothing has been heard of it. */
  readonly status: 'online' | 'draining' | 'offline' | 'unknown';
  /** Since when, in milliseconds since 1970. */
  readonly since?: number;
  readonly reason?: string;
  readonly session?: string;
  /** The id of its ledger, if it says which. */
  readonly ledger?: string;
  readonly capabilities?: Capabilities;
  /** As it says, or as it is configured. */
  readonly tools: readonly OfferedTool[];
  /** It speaks only the original protocol. */
  readonly isPlain: boolean;
  /** Of the last `ping`. */
  readonly latencyMs?: number;
  readonly load?: Fields;
  /** How far its clock is ahead of the one here. */
  readonly clockOffsetMs?: number;
  /** The last calls, newest first. */
  readonly calls: readonly DeviceCall[];
}

export interface DeviceCall {
  readonly requestId: string;
  readonly tool: string;
  readonly at: number;
  readonly elapsedMs?: number;
  /** `success`, a type of error, or absent while it runs. */
  readonly result?: string;
}

export interface SeenMessage {
  readonly device: string;
  readonly kind: string;
  /** As JSON, if it is. */
  readonly message: unknown;
}

/** A device or its broker did not do what was asked. */
export class EdgeError extends Error {
  override readonly name = 'EdgeError';
  readonly code: 'timeout' | 'offline' | 'unknown-device' | 'refused' | 'closed' | 'damaged';

  constructor(code: EdgeError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/** How a wait for a report ends. */
export type Reported =
  | { readonly type: 'report'; readonly report: ReceivedReport }
  /** The device went away, and has not come back in the time of grace. */
  | { readonly type: 'offline'; readonly reason: string | undefined }
  /** The command was meant for another ledger of the device, which may have executed it. */
  | { readonly type: 'other-ledger' }
  | { readonly type: 'timeout' | 'aborted' };

export type ReceivedReport = Extract<DecodedReport, { type: 'result' }>['report'];

export interface SendOptions {
  /** The device refuses the command after this time. Default: the time that is waited. */
  readonly expiresMs?: number;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: unknown) => void;
  /** Settles the wait when the device goes away; default true. */
  readonly failsOffline?: boolean;
}

/** What a command is about, without what the link adds. */
export type Sent = Pick<KnownCommand, 'type' | 'payload'> & {
  readonly requestId: string;
  /** Only this start of the device may execute it. */
  readonly session?: string;
  /** Only the device with this ledger may execute it. */
  readonly ledger?: string | undefined;
};

interface Waiter {
  readonly device: Device;
  readonly sent: Sent;
  /** The same whenever it is sent: a device that has refused it does not take it for another attempt. */
  readonly expiresAt: number;
  readonly settle: (reported: Reported) => void;
  readonly onProgress?: ((progress: unknown) => void) | undefined;
  readonly failsOffline: boolean;
  /** The difference of the clocks that it was sent with. */
  clockOffsetMs: number;
  /** The broker may have got it. */
  wasSent: boolean;
}

interface Device {
  readonly options: DeviceOptions;
  status: DeviceView['status'];
  since?: number;
  reason?: string | undefined;
  session?: string;
  /** Those before it, the latest last. */
  readonly sessions: string[];
  ledger?: string | undefined;
  capabilities?: Capabilities;
  latencyMs?: number;
  load?: Fields;
  clockOffsetMs: number;
  /** Messages that came from it, and not from the broker's memory. */
  heard: number;
  /** When one of the original protocol was heard, which does not say that it is there. */
  heardAt: number | undefined;
  /** It is taken for offline because it did not answer. */
  isSilent: boolean;
  cancelGrace: () => void;
  readonly calls: DeviceCall[];
  /** Results to acknowledge. */
  readonly acks: Set<string>;
  cancelAck: () => void;
  /** Of a device without a ledger: the call that it owes a report for, and those that wait for their turn. */
  owed?: { readonly tool: string; readonly until: number } | undefined;
  readonly turns: (() => void)[];
  isBusy: boolean;
}

export interface EdgeLink {
  readonly isConnected: boolean;
  readonly prefix: string;
  devices(): readonly DeviceView[];
  device(name: string): DeviceView | undefined;
  optionsOf(name: string): DeviceOptions;
  /** Sends a command, and waits for its report. Never rejects, unless the device is not configured. */
  send(device: string, sent: Sent, options: SendOptions): Promise<Reported>;
  /** The same for questions: rejects with an `EdgeError` if there is no answer. */
  ask(device: string, sent: Omit<Sent, 'requestId'>, options?: Partial<SendOptions>): Promise<unknown>;
  /** Asks for the load of a device, and measures the time. */
  ping(device: string): Promise<{ readonly latencyMs: number; readonly load: Fields }>;
  /** Asks for what it offers, as it is now. */
  refresh(device: string): Promise<Capabilities>;
  /** The whole report of a result that is served in parts. */
  fetchReport(device: string, blob: BlobReference, signal?: AbortSignal): Promise<ReceivedReport>;
  /** Nobody will ask for the result of this call again. */
  acknowledge(device: string, requestId: string): void;
  noteCall(device: string, call: DeviceCall): void;
  /** Called when the status or the tools of a device have changed. Returns a function that removes the listener. */
  onChange(listener: (device: string) => void): () => void;
  /** Called with every message of the devices, and those to them if the link reads commands. For logs. */
  watch(listener: (seen: SeenMessage) => void): () => void;
  /** Resolves when the device is online and its tools are known, or after the time. */
  whenReady(device: string, timeoutMs: number): Promise<boolean>;
  /** Resolves when the link is connected, or after the time. */
  whenConnected(timeoutMs: number): Promise<boolean>;
  close(): Promise<void>;
}

const GRACE_MS = 1_000;
/** Without a broker, until devices are taken for offline. */
const BROKER_MS = 5_000;
export const NO_BROKER = 'there is no connection to the broker';
const ASK_MS = 10_000;
const ACK_MS = 200;
const MAX_ACKS = 500;
const MAX_CALLS = 20;
const MAX_SESSIONS = 20;
/** Bytes of a result that is fetched in parts. */
const MAX_RESULT_BYTES = 64 * 1024 * 1024;
/** A result that nobody has waited for in this time is acknowledged. */
const UNCLAIMED_MS = 24 * 3_600_000;
/** A smaller difference of clocks is the time that messages take. */
const CLOCK_MS = 1_000;
/** For the missing report of a device without a ledger. */
const OWED_MS = 5 * 60_000;
/** A device of the original protocol of which nothing was heard for longer may be gone. */
const HEARD_MS = 5 * 60_000;

/** Connects to a broker. Throws for options that cannot be used; everything else is tried again. */
export function edgeLink(options: EdgeOptions): EdgeLink {
  return new Link(options);
}

class Link implements EdgeLink {
  readonly prefix: string;
  readonly #options: EdgeOptions;
  readonly #topics: Topics;
  readonly #clock: Clock;
  readonly #log: (line: EdgeLogLine) => void;
  readonly #client: MqttClient;
  readonly #devices = new Map<string, Device>();
  readonly #waiters = new Map<string, Waiter>();
  readonly #listeners = new Set<(device: string) => void>();
  readonly #watchers = new Set<(seen: SeenMessage) => void>();
  /** Calls that were given up, whose results are acknowledged when they come. */
  readonly #abandoned = new Set<string>();
  readonly #own = `link-${randomUUID()}`;
  #lastId = 0;
  /** With the broker, so far. */
  #connections = 0;
  #cancelBrokerTimer: () => void = () => {};
  #isClosed = false;

  constructor(options: EdgeOptions) {
    const { prefix, devices, broker, clock = systemClock, random, log = () => {} } = options;
    this.prefix = prefix;
    this.#options = options;
    this.#topics = topicsOf(prefix);
    this.#clock = clock;
    this.#log = log;
    for (const one of devices) this.#devices.set(one.name, newDevice(one));
    const { readsCommands = options.onPrompt !== undefined } = options;
    const kinds = ['reports', 'status', 'capabilities', ...(readsCommands ? (['commands'] as const) : [])] as const;
    this.#client = mqttClient({
      ...broker,
      clientId: this.#own,
      clock,
      ...(random && { random }),
      subscriptions: kinds.map((kind) => ({ topic: this.#topics.all(kind), qos: 1 })),
      onMessage: ({ topic, payload, retained }) => this.#receive(topic, payload, retained),
      onConnect: ({ protocol }) => {
        log({ level: 'info', message: 'connected to the broker', protocol: protocol === 5 ? '5' : '3.1.1' });
        this.#connections++;
        this.#cancelBrokerTimer();
        for (const waiter of this.#waiters.values()) this.#resend(waiter);
        for (const device of this.#devices.values()) if (hasSaidOnline(device) || device.isSilent) this.#check(device);
        this.#changed('');
      },
      onDisconnect: () => {
        if (!this.#isClosed) this.#cancelBrokerTimer = clock.timer(BROKER_MS, () => this.#withoutBroker());
      },
      onProblem: (problem) => log({ level: 'warn', message: 'no connection to the broker', why: problem }),
    });
  }

  get isConnected(): boolean {
    return this.#client.isConnected;
  }

  devices(): readonly DeviceView[] {
    return [...this.#devices.values()].map((one) => viewOf(one, this.#clock.now()));
  }

  device(name: string): DeviceView | undefined {
    const found = this.#devices.get(name);
    return found && viewOf(found, this.#clock.now());
  }

  optionsOf(name: string): DeviceOptions {
    return this.#find(name).options;
  }

  async send(name: string, sent: Sent, options: SendOptions): Promise<Reported> {
    const device = this.#find(name);
    if (!isPlain(device) || sent.type !== 'tool') return this.#sendNow(device, sent, options);
    const release = await this.#turn(device, options);
    if (!release) return { type: options.signal?.aborted ? 'aborted' : 'timeout' };
    const tool = String((sent.payload as Fields)['tool']);
    const sentAt = this.#clock.now();
    const reported = await this.#sendNow(device, sent, options);
    if (reported.type !== 'report') {
      // A report may still come, and must not be taken for that of the next call.
      device.owed = { tool, until: this.#clock.now() + OWED_MS };
      const { timeoutMs, expiresMs = timeoutMs } = options;
      const isLate = reported.type === 'timeout' || this.#clock.now() >= sentAt + expiresMs;
      if (isLate && (device.heardAt ?? 0) <= sentAt) this.#lostPlain(device);
    }
    release();
    return reported;
  }

  async ask(name: string, sent: Omit<Sent, 'requestId'>, options: Partial<SendOptions> = {}): Promise<unknown> {
    const device = this.#find(name);
    if (!isReachable(device)) throw new EdgeError('offline', `The device "${name}" is ${statusText(device)}.`);
    const reported = await this.send(name, { ...sent, requestId: this.#newId() } as Sent, {
      timeoutMs: ASK_MS,
      ...options,
    });
    switch (reported.type) {
      case 'report': {
        const { status, result, error = '', error_type: type } = reported.report;
        if (status === 'success') return result;
        throw Object.assign(new EdgeError('refused', error), { errorType: type, result });
      }
      case 'offline':
        throw new EdgeError('offline', `The device "${name}" went offline.`);
      case 'timeout':
        throw new EdgeError('timeout', `The device "${name}" did not answer "${sent.type}" in time.`);
      case 'other-ledger':
        throw Object.assign(new EdgeError('refused', `The device "${name}" has another ledger now.`), {
          errorType: 'other_ledger',
        });
      case 'aborted':
        throw new EdgeError('closed', `The question to the device "${name}" was given up.`);
      default:
        return reported satisfies never;
    }
  }

  async ping(name: string): Promise<{ readonly latencyMs: number; readonly load: Fields }> {
    const device = this.#find(name);
    const sentAt = this.#clock.now();
    const started = performance.now();
    const requestId = this.#newId();
    const reported = await this.send(name, { type: 'ping', payload: {}, requestId }, { timeoutMs: ASK_MS });
    if (reported.type !== 'report') throw new EdgeError('timeout', `The device "${name}" did not answer the ping.`);
    const latencyMs = performance.now() - started;
    const { timestamp, result } = reported.report;
    device.latencyMs = latencyMs;
    device.load = (result ?? {}) as Fields;
    if (timestamp !== undefined) this.#setOffset(device, timestamp - sentAt - latencyMs / 2);
    return { latencyMs, load: device.load };
  }

  async refresh(name: string): Promise<Capabilities> {
    const device = this.#find(name);
    const decoded = capabilitiesFrom((await this.ask(name, { type: 'tools_list', payload: {} })) as Fields, name);
    if (decoded.type === 'invalid')
      throw new EdgeError('damaged', `The device "${name}" listed wrong tools: ${decoded.problem}.`);
    device.capabilities = decoded.capabilities;
    this.#changed(name);
    return decoded.capabilities;
  }

  async fetchReport(name: string, { id, bytes }: BlobReference, signal?: AbortSignal): Promise<ReceivedReport> {
    if (bytes > MAX_RESULT_BYTES) {
      throw new EdgeError('damaged', `The result has ${bytes} bytes, and at most ${MAX_RESULT_BYTES} are fetched.`);
    }
    const parts: Buffer[] = [];
    for (let offset = 0; offset < bytes;) {
      const payload = { blob: id, offset, length: MAX_PART_BYTES };
      const part = (await this.ask(name, { type: 'blob', payload }, { ...(signal && { signal }) })) as Fields;
      const data = Buffer.from(String(part['data']), 'base64');
      if (data.length === 0) throw new EdgeError('damaged', `The device "${name}" served only a part of a result.`);
      parts.push(data);
      offset += data.length;
    }
    const whole = Buffer.concat(parts);
    if (createHash('sha256').update(whole).digest('hex') !== id) {
      throw new EdgeError('damaged', `The device "${name}" served another result than it had reported.`);
    }
    const parsed = parseMessage(whole, MAX_RESULT_BYTES);
    const decoded: DecodedReport =
      'value' in parsed ? reportFrom(parsed.value) : { type: 'invalid', problem: parsed.problem };
    if (decoded.type !== 'result')
      throw new EdgeError('damaged', `The device "${name}" served something else than a result.`);
    return decoded.report;
  }

  acknowledge(name: string, requestId: string): void {
    const device = this.#find(name);
    if (device.capabilities?.ledger !== true) return;
    device.acks.add(requestId);
    if (device.acks.size === 1) device.cancelAck = this.#clock.timer(ACK_MS, () => this.#sendAcks(device));
    else if (device.acks.size >= MAX_ACKS) this.#sendAcks(device);
  }

  noteCall(name: string, call: DeviceCall): void {
    const { calls } = this.#find(name);
    const at = calls.findIndex(({ requestId }) => requestId === call.requestId);
    if (at >= 0) calls[at] = call;
    else calls.unshift(call);
    calls.splice(MAX_CALLS);
  }

  onChange(listener: (device: string) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  watch(listener: (seen: SeenMessage) => void): () => void {
    this.#watchers.add(listener);
    return () => void this.#watchers.delete(listener);
  }

  whenReady(name: string, timeoutMs: number): Promise<boolean> {
    const device = this.#find(name);
    return this.#until(() => isReachable(device) && (isPlain(device) || device.capabilities !== undefined), timeoutMs);
  }

  whenConnected(timeoutMs: number): Promise<boolean> {
    return this.#until(() => this.isConnected, timeoutMs);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelBrokerTimer();
    for (const device of this.#devices.values()) {
      device.cancelGrace();
      if (device.acks.size > 0) this.#sendAcks(device);
    }
    for (const { settle } of this.#waiters.values()) settle({ type: 'aborted' });
    this.#changed('');
    await this.#client.close();
  }

  #until(isTrue: () => boolean, timeoutMs: number): Promise<boolean> {
    if (isTrue()) return Promise.resolve(true);
    return new Promise((done) => {
      const end = (value: boolean): void => {
        cancelTimer();
        stop();
        done(value);
      };
      const cancelTimer = this.#clock.timer(timeoutMs, () => end(isTrue()));
      const stop = this.onChange(() => (isTrue() || this.#isClosed) && end(isTrue()));
    });
  }

  #find(name: string): Device {
    const device = this.#devices.get(name);
    if (device) return device;
    const names = [...this.#devices.keys()].join(', ') || 'none';
    throw new EdgeError('unknown-device', `There is no device ${JSON.stringify(name)}. Devices: ${names}.`);
  }

  #newId(): string {
    return `${this.#own}-${++this.#lastId}`;
  }

  #changed(name: string): void {
    for (const listener of this.#listeners) listener(name);
  }

  /** Waits until a device without a ledger may get the next call. Undefined: it took too long. */
  async #turn(device: Device, { timeoutMs, signal }: SendOptions): Promise<(() => void) | undefined> {
    const isFree = (): boolean => {
      if (device.owed && device.owed.until <= this.#clock.now()) device.owed = undefined;
      return !device.isBusy && !device.owed;
    };
    const release = (): void => {
      device.isBusy = false;
      device.turns.shift()?.();
    };
    let isLate = false;
    const cancelTimer = this.#clock.timer(timeoutMs, () => {
      isLate = true;
      for (const wake of device.turns.splice(0)) wake();
    });
    const wakeAll = (): void => device.turns.splice(0).forEach((wake) => wake());
    signal?.addEventListener('abort', wakeAll);
    while (!isFree() && !isLate && signal?.aborted !== true && !this.#isClosed) {
      await new Promise<void>((wake) => device.turns.push(wake));
    }
    cancelTimer();
    signal?.removeEventListener('abort', wakeAll);
    if (isLate || signal?.aborted || this.#isClosed) return undefined;
    device.isBusy = true;
    return release;
  }

  #sendNow(device: Device, sent: Sent, options: SendOptions): Promise<Reported> {
    const { timeoutMs, expiresMs = timeoutMs, signal, onProgress, failsOffline = true } = options;
    if (signal?.aborted || this.#isClosed) return Promise.resolve({ type: 'aborted' });
    const { requestId } = sent;
    const { promise, resolve } = Promise.withResolvers<Reported>();
    const settle = (reported: Reported): void => {
      if (this.#waiters.get(requestId) === waiter) this.#waiters.delete(requestId);
      cancelTimer();
      signal?.removeEventListener('abort', onAbort);
      // A call that waits for its device, or whose run is detached, is asked about again.
      const isAskedAgain =
        reported.type === 'offline' ? device.options.onOffline === 'wait' : signal !== undefined && isDetached(signal);
      if (reported.type !== 'report' && !isAskedAgain && sent.type === 'tool') this.#abandon(requestId);
      resolve(reported);
    };
    const onAbort = (): void => settle({ type: 'aborted' });
    const waiter: Waiter = {
      device,
      sent,
      expiresAt: this.#clock.now() + Math.min(expiresMs, timeoutMs),
      settle,
      onProgress,
      failsOffline,
      clockOffsetMs: device.clockOffsetMs,
      wasSent: false,
    };
    // Another wait for the same call, such as one that a resumed run has given up.
    this.#waiters.get(requestId)?.settle({ type: 'aborted' });
    this.#abandoned.delete(requestId);
    this.#waiters.set(requestId, waiter);
    const cancelTimer = this.#clock.timer(timeoutMs, () => settle({ type: 'timeout' }));
    signal?.addEventListener('abort', onAbort);
    this.#publish(waiter);
    return promise;
  }

  #publish(waiter: Waiter): void {
    const { device, sent, expiresAt } = waiter;
    waiter.clockOffsetMs = device.clockOffsetMs;
    if (!this.isConnected) return;
    const { name } = device.options;
    const { requestId, session, ledger, ...rest } = sent;
    if (ledger !== undefined && device.ledger !== ledger) return waiter.settle({ type: 'other-ledger' });
    const command = {
      ...rest,
      request_id: requestId,
      expires_at: Math.round(expiresAt + device.clockOffsetMs),
      ...(session !== undefined && { session }),
      ...(ledger !== undefined && { ledger }),
    } as KnownCommand;
    const payload = encodeCommand(command);
    const bytes = Buffer.byteLength(payload);
    const most = Math.min(MAX_MESSAGE_BYTES, this.#client.maxPayloadBytes);
    if (bytes > most) return waiter.settle({ type: 'report', report: tooLarge(bytes, most) });
    waiter.wasSent = true;
    void this.#client.publish({
      topic: this.#topics.commands(name),
      payload,
      qos: 1,
      expiresMs: Math.max(1, expiresAt - this.#clock.now()),
      responseTopic: this.#topics.reports(name),
    });
    return undefined;
  }

  /** A device with a ledger executes it once. An operation belongs to one start of the device. */
  #resend(waiter: Waiter): void {
    const { device, sent, wasSent } = waiter;
    if (!wasSent || !isPlain(device) || sent.type !== 'tool') this.#publish(waiter);
  }

  #abandon(requestId: string): void {
    this.#abandoned.add(requestId);
    const [oldest] = this.#abandoned;
    if (this.#abandoned.size > 10_000) this.#abandoned.delete(oldest!);
  }

  #sendAcks(device: Device): void {
    const targets = [...device.acks].slice(0, MAX_ACKS);
    device.cancelAck();
    device.acks.clear();
    const command = { type: 'ack', request_id: this.#newId(), payload: { targets } } as const;
    const topic = this.#topics.commands(device.options.name);
    void this.#client.publish({ topic, payload: encodeCommand(command), qos: 1 });
  }

  #receive(topic: string, payload: Uint8Array, retained: boolean): void {
    const parsed = this.#topics.parse(topic);
    if (!parsed || parsed.kind === 'broadcast' || !isDeviceId(parsed.id)) return;
    const device = this.#devices.get(parsed.id);
    if (!device) return;
    if (this.#watchers.size > 0) {
      const read = parseMessage(payload);
      const message = 'value' in read ? read.value : { problem: read.problem };
      for (const listener of this.#watchers) listener({ device: parsed.id, kind: parsed.kind, message });
    }
    switch (parsed.kind) {
      case 'status':
        return this.#onStatus(device, payload, retained);
      case 'capabilities':
        return this.#onCapabilities(device, payload);
      case 'reports':
        return retained ? undefined : this.#onReport(device, payload);
      case 'commands':
        return retained ? undefined : this.#onCommand(device, payload);
      case 'strategy':
        return undefined;
      default:
        return parsed satisfies never;
    }
  }

  #onStatus(device: Device, payload: Uint8Array, retained: boolean): void {
    const { name } = device.options;
    if (payload.length === 0) return;
    const decoded = decodeStatus(payload, name);
    if (decoded.type === 'invalid') {
      this.#log({ level: 'warn', message: 'a status was dropped', device: name, why: decoded.problem });
      return;
    }
    const { status, session, ledger, reason } = decoded.status;
    // The will of an earlier start.
    if (status === 'offline' && session !== undefined && device.session !== undefined && session !== device.session)
      return;
    const before = { status: device.status, session: device.session };
    device.status = status;
    device.isSilent = false;
    if (!retained) device.heard++;
    device.reason = reason;
    device.since = this.#clock.now();
    if (session !== undefined) this.#noteSession(device, session, retained);
    device.ledger = ledger;
    if (status === 'offline') this.#wentOffline(device);
    else this.#cameOnline(device, { ...before, isKept: retained });
    if (retained && hasSaidOnline(device)) this.#check(device);
    this.#changed(name);
  }

  /** It is offline if nothing is heard of it, although it is asked. */
  #check(device: Device): void {
    const { name } = device.options;
    const { heard } = device;
    const connections = this.#connections;
    this.ping(name).catch(() => {
      const isOther = this.#connections !== connections || !this.isConnected || this.#isClosed;
      if (!isOther && device.heard === heard && hasSaidOnline(device)) this.#isGone(device, 'it does not answer');
    });
  }

  /** Nobody knows whether devices are there. */
  #withoutBroker(): void {
    for (const device of this.#devices.values()) {
      if (hasSaidOnline(device)) this.#isGone(device, NO_BROKER);
      // It need not say that it is back.
      else if (isPlain(device)) {
        this.#lostPlain(device);
        this.#settleCalls(device, NO_BROKER);
      }
    }
  }

  /** It is taken for offline until something is heard of it. */
  #isGone(device: Device, reason: string): void {
    device.status = 'offline';
    device.isSilent = true;
    device.reason = reason;
    device.since = this.#clock.now();
    this.#wentOffline(device);
    this.#changed(device.options.name);
  }

  /** `session`: of a report, which an earlier start may have sent, or this side in answer to a prompt. */
  #heardOf(device: Device, session: string | undefined): void {
    if (session !== device.session) return;
    device.heard++;
    if (!device.isSilent) return;
    device.isSilent = false;
    const before = { status: device.status, session: device.session, isKept: false };
    device.status = 'online';
    device.reason = undefined;
    device.since = this.#clock.now();
    this.#cameOnline(device, before);
    this.#changed(device.options.name);
  }

  #heardPlain(device: Device): void {
    if (!isPlain(device)) return;
    const wasHeard = isHeard(device, this.#clock.now());
    device.heardAt = this.#clock.now();
    if (!wasHeard) this.#changed(device.options.name);
  }

  #lostPlain(device: Device): void {
    device.heardAt = undefined;
    this.#changed(device.options.name);
  }

  /** A session that was replaced and comes back is of another device with the same id. What a broker has kept may be old. */
  #noteSession(device: Device, session: string, retained: boolean): void {
    const { sessions, session: before } = device;
    if (session === before) return;
    device.session = session;
    if (!retained && sessions.includes(session)) {
      const why =
        'Two devices have this id, and take the connection of each other. Give each its own [agent] id and its own store.';
      this.#log({ level: 'error', message: 'two devices have the same id', device: device.options.name, why });
    }
    if (before !== undefined && !sessions.includes(before)) sessions.push(before);
    if (sessions.length > MAX_SESSIONS) sessions.shift();
  }

  #wentOffline(device: Device): void {
    const { name } = device.options;
    this.#log({
      level: 'info',
      message: 'a device is offline',
      device: name,
      ...(device.reason !== undefined && { why: device.reason }),
    });
    device.cancelGrace();
    const graceMs = this.#options.offlineGraceMs ?? GRACE_MS;
    device.cancelGrace = this.#clock.timer(graceMs, () => this.#settleCalls(device, device.reason));
  }

  #settleCalls(device: Device, reason: string | undefined): void {
    for (const { failsOffline, settle } of this.#waitersOf(device))
      if (failsOffline) settle({ type: 'offline', reason });
  }

  #cameOnline(
    device: Device,
    before: {
      readonly status: DeviceView['status'];
      readonly session: string | undefined;
      /** Its status comes from the memory of the broker. */
      readonly isKept: boolean;
    },
  ): void {
    const { name } = device.options;
    device.cancelGrace();
    if (device.status !== 'online') return;
    const isNew = before.session !== device.session;
    if (isNew) {
      // What it owed died with it.
      device.owed = undefined;
      for (const wake of device.turns.splice(0)) wake();
    }
    for (const waiter of this.#waitersOf(device)) {
      const { session } = waiter.sent;
      // An operation was for the start of the device that has ended.
      if (session !== undefined && session !== device.session)
        waiter.settle({ type: 'offline', reason: 'it was started again' });
      else this.#resend(waiter);
    }
    if (!isNew && before.status === 'online') return;
    this.#log({ level: 'info', message: 'a device is online', device: name });
    // What is checked is measured with that.
    if (!isPlain(device) && !before.isKept) this.ping(name).catch(() => {});
  }

  #waitersOf(device: Device): readonly Waiter[] {
    return [...this.#waiters.values()].filter((one) => one.device === device);
  }

  #onCapabilities(device: Device, payload: Uint8Array): void {
    const { name } = device.options;
    if (payload.length === 0) return;
    const decoded = decodeCapabilities(payload, name);
    if (decoded.type === 'invalid') {
      this.#log({ level: 'warn', message: 'capabilities were dropped', device: name, why: decoded.problem });
      return;
    }
    device.capabilities = decoded.capabilities;
    this.#changed(name);
  }

  #onReport(device: Device, payload: Uint8Array): void {
    const { name } = device.options;
    const decoded = decodeReport(payload);
    if (decoded.type === 'invalid') {
      this.#log({ level: 'warn', message: 'a report was dropped', device: name, why: decoded.problem });
      return;
    }
    if (decoded.type === 'progress') {
      const waiter = this.#waiters.get(decoded.report.request_id);
      if (waiter?.device === device) waiter.onProgress?.(decoded.report.progress);
      return;
    }
    if (decoded.type === 'other') return this.#heardPlain(device);
    const { report } = decoded;
    this.#heardOf(device, report.session);
    const { request_id: id } = report;
    const waiter = id === undefined ? this.#plainWaiter(device, report) : this.#waiters.get(id);
    // Another id may be that of an answer of this side to a prompt.
    if (id === undefined || waiter?.device === device) this.#heardPlain(device);
    if (waiter?.device === device) return this.#settleWaiter(waiter, report);
    if (id !== undefined) this.#onUnclaimed(device, id, report);
    return undefined;
  }

  /** Whose report it is that has no id: that of the one call that the device has, or of a ping. */
  #plainWaiter(device: Device, { tool, result }: ReceivedReport): Waiter | undefined {
    if (!isPlain(device)) return undefined;
    // All that the original agents answer to a ping, whoever has sent it.
    const isPong = tool === undefined && isFields(result) && result['pong'] === true;
    if (isPong) return this.#waitersOf(device).find(({ sent }) => sent.type === 'ping');
    if (device.owed) {
      if (tool !== undefined && tool !== device.owed.tool) return undefined;
      device.owed = undefined;
      device.turns.shift()?.();
      return undefined;
    }
    return this.#waitersOf(device).find(
      ({ sent }) => sent.type === 'tool' && (tool === undefined || (sent.payload as Fields)['tool'] === tool),
    );
  }

  #settleWaiter(waiter: Waiter, report: ReceivedReport): void {
    const { device, sent } = waiter;
    const { error_type: type, timestamp } = report;
    // A device whose clock is ahead takes everything for late. It has said what time it is there.
    if (type === 'expired' && timestamp !== undefined && sent.session === undefined) {
      this.#setOffset(device, timestamp - this.#clock.now());
      if (Math.abs(device.clockOffsetMs - waiter.clockOffsetMs) > CLOCK_MS) return this.#resend(waiter);
    }
    if (type === 'other_ledger') return waiter.settle({ type: 'other-ledger' });
    waiter.settle({ type: 'report', report });
    // One that is served in parts is acknowledged when it was fetched.
    if (sent.type === 'tool' && report.request_id !== undefined && !report.result_blob)
      this.acknowledge(device.options.name, report.request_id);
    return undefined;
  }

  /** A result that nobody waits for is kept by the device, for a run that asks later, unless the call was given up. */
  #onUnclaimed(device: Device, id: string, { timestamp }: ReceivedReport): void {
    const age = timestamp === undefined ? 0 : this.#clock.now() + device.clockOffsetMs - timestamp;
    if (!this.#abandoned.delete(id) && age < UNCLAIMED_MS) return;
    this.acknowledge(device.options.name, id);
  }

  #onCommand(device: Device, payload: Uint8Array): void {
    const { onPrompt } = this.#options;
    if (!onPrompt) return;
    const decoded = decodeCommand(payload);
    if (decoded.type !== 'command' || decoded.command.type !== 'prompt') return;
    const { request_id: requestId, expires_at: expiresAt = Infinity, payload: asked } = decoded.command;
    const { name } = device.options;
    const reply = async (report: Parameters<EdgePrompt['reply']>[0]): Promise<void> => {
      const answer: ResultReport = { request_id: requestId, ...report };
      const whole = encodeReport(answer);
      const error = { status: 'error', error: 'The answer is too large.', error_type: 'execution_failed' } as const;
      const payload =
        Buffer.byteLength(whole) > MAX_MESSAGE_BYTES ? encodeReport({ request_id: requestId, ...error }) : whole;
      await this.#client.publish({ topic: this.#topics.reports(name), payload, qos: 1 });
    };
    const lateMs = this.#clock.now() + device.clockOffsetMs - expiresAt;
    if (lateMs > 0) {
      void reply({
        status: 'error',
        error: `The message was delivered ${lateMs} ms too late.`,
        error_type: 'expired',
      });
      return;
    }
    onPrompt({ requestId, device: name, text: asked.prompt, conversation: asked.conversation, reply });
  }

  #setOffset(device: Device, offset: number): void {
    device.clockOffsetMs = Math.abs(offset) > CLOCK_MS ? Math.round(offset) : 0;
  }
}

/** The device could not read it, and would not answer. */
function tooLarge(bytes: number, most: number): ReceivedReport {
  const error = `The command has ${bytes} bytes, and at most ${most} can be sent. It was not executed.`;
  return { status: 'error', error, error_type: 'invalid_params' };
}

function newDevice(options: DeviceOptions): Device {
  return {
    options,
    status: 'unknown',
    clockOffsetMs: 0,
    heard: 0,
    heardAt: undefined,
    isSilent: false,
    cancelGrace: () => {},
    sessions: [],
    calls: [],
    acks: new Set(),
    cancelAck: () => {},
    turns: [],
    isBusy: false,
  };
}

/** It has published nothing about itself, so it knows only the original protocol. */
function isPlain({ capabilities, options }: Device): boolean {
  return capabilities === undefined && options.tools !== undefined;
}

/** It answers questions, and as far as anybody knows it is there. */
function hasSaidOnline(device: Device): boolean {
  return !isPlain(device) && (device.status === 'online' || device.status === 'draining');
}

/** A device of the original protocol need not say that it is there. */
function isReachable(device: Device): boolean {
  const { status } = device;
  return status === 'online' || status === 'draining' || (status === 'unknown' && isPlain(device));
}

function statusText({ status, reason }: Device): string {
  if (status === 'unknown') return 'not connected to the broker';
  return `${status}${reason === undefined ? '' : ` (${reason})`}`;
}

function isHeard({ heardAt }: Device, now: number): boolean {
  return heardAt !== undefined && now - heardAt < HEARD_MS;
}

function viewOf(device: Device, now: number): DeviceView {
  const { options, status, since, reason, session, ledger, capabilities, latencyMs, load, clockOffsetMs, calls } =
    device;
  return {
    name: options.name,
    tenant: options.tenant ?? 'default',
    status: status === 'unknown' && isPlain(device) && isHeard(device, now) ? 'online' : status,
    ...(since !== undefined && { since }),
    ...(reason !== undefined && { reason }),
    ...(session !== undefined && { session }),
    ...(ledger !== undefined && { ledger }),
    ...(capabilities && { capabilities }),
    tools: capabilities?.tools ?? options.tools ?? [],
    isPlain: isPlain(device),
    ...(latencyMs !== undefined && { latencyMs }),
    ...(load && { load }),
    ...(clockOffsetMs !== 0 && { clockOffsetMs }),
    calls: [...calls],
  };
}
