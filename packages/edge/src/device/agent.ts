import { randomUUID } from 'node:crypto';
import type { Clock } from '@treadle/core';
import { mqttClient, SYSTEM_CLOCK, type MqttClient, type MqttOptions } from '../mqtt/client.ts';
import { encodeCapabilities, type Capabilities } from '../protocol/capabilities.ts';
import { decodeCommand, requestIdIn, type KnownCommand, type ToolPayload } from '../protocol/command.ts';
import { MAX_MESSAGE_BYTES, parseMessage, type Fields } from '../protocol/message.ts';
import { encodeProgress, encodeReport, type ReportErrorType, type ResultReport } from '../protocol/report.ts';
import { encodeStatus, type DeviceStatus } from '../protocol/status.ts';
import { topicsOf } from '../protocol/topics.ts';
import { rememberedAnswers } from './answers.ts';
import type { CallState, Ledger } from './ledger.ts';
import { progressSender } from './progress.ts';
import type { Described, Outcome, Runner } from './runner.ts';

/*
 * The agent of a device: it takes commands from a broker, lets a runner execute calls, and reports.
 *
 * 1. A call executes after the ledger has synced that it begins, and its report is sent after the ledger has synced its result.
 * 2. A request id executes at most once, however often it is delivered, and whenever the device is killed.
 *    A command for another ledger is refused: nobody knows what became of it there.
 * 3. What arrives after its expiry, for another start of the device, or while the queue is full, is refused, and not executed,
 *    also if it is delivered again. Only a later expiry makes it another attempt.
 * 4. Whenever it connects, it publishes its status and capabilities, and sends every report that nobody has acknowledged.
 * 5. It takes nothing new when it shuts down, and waits for what runs.
 * 6. It shuts down if another process has its ledger: what it knows of calls is not true any more, so it answers nothing about them.
 */

export interface AgentOptions {
  readonly id: string;
  readonly type?: string;
  readonly prefix: string;
  /** How it connects to its broker. */
  readonly broker: Pick<MqttOptions, 'url' | 'tls' | 'username' | 'password' | 'keepAliveMs' | 'protocol'>;
  readonly ledger: Ledger;
  readonly runner: Runner;
  /** Calls that run at the same time; default 4. */
  readonly maxParallel?: number;
  /** Calls that wait; default 32. */
  readonly maxQueued?: number;
  /** Of a call that says nothing else; default 30 seconds. */
  readonly timeoutMs?: number;
  readonly clock?: Clock;
  readonly random?: () => number;
  readonly log?: (line: AgentLogLine) => void;
  /** The orchestrator has sent `shutdown`, or the ledger is lost. The caller calls `close`. */
  readonly onShutdown?: (reason: string | undefined) => void;
}

export interface AgentLogLine {
  readonly level: 'info' | 'warn';
  readonly message: string;
  readonly [field: string]: unknown;
}

export interface DeviceAgent {
  readonly id: string;
  readonly session: string;
  readonly isConnected: boolean;
  /** Takes nothing new, waits for what runs at most for `graceMs`, ends the rest, and goes offline. */
  close(graceMs?: number): Promise<void>;
}

const MAX_PARALLEL = 4;
const MAX_QUEUED = 32;
const TIMEOUT_MS = 30_000;
/** Answers to operations and refusals of calls that were delivered twice. */
const MAX_REMEMBERED = 512;
/** Of answers to operations. One may have 350,000. */
const MAX_ANSWER_CHARS = 4_000_000;

/** A call that waits or runs. */
interface OpenCall {
  readonly id: string;
  readonly payload: ToolPayload;
  readonly receivedAt: number;
  /** By when it has to be reported. */
  readonly dueAt: number;
  /** Of its command. */
  readonly expiresAt: number | undefined;
  readonly controller: AbortController;
  isRunning: boolean;
  /** Of the time that it may wait. */
  stopWaiting: () => void;
}

/** Loads the tools of the device, and connects. Rejects if its tools cannot be loaded. */
export async function startAgent(options: AgentOptions): Promise<DeviceAgent> {
  const agent = new Agent(options, await options.runner.describe());
  agent.start();
  return agent;
}

class Agent implements DeviceAgent {
  readonly id: string;
  readonly session: string = randomUUID();
  readonly #options: AgentOptions;
  readonly #topics: ReturnType<typeof topicsOf>;
  readonly #clock: Clock;
  readonly #log: (line: AgentLogLine) => void;
  readonly #startedAt: number;
  readonly #calls = new Map<string, OpenCall>();
  readonly #queue: OpenCall[] = [];
  /** Of operations of this start of the device. */
  readonly #answers = rememberedAnswers({ maxAnswers: MAX_REMEMBERED, maxChars: MAX_ANSWER_CHARS });
  /** Calls that were reported as not executed, until the commands that were refused have expired. */
  readonly #refused = new Map<string, { readonly why: Outcome; readonly until: number }>();
  #described: Described;
  #client: MqttClient | undefined;
  #running = 0;
  #isDraining = false;
  #hasLost = false;
  #onIdle: () => void = ignore;

  constructor(options: AgentOptions, described: Described) {
    const { id, prefix, clock = SYSTEM_CLOCK, log = ignore } = options;
    this.#options = options;
    this.#described = described;
    this.id = id;
    this.#topics = topicsOf(prefix);
    this.#clock = clock;
    this.#log = log;
    this.#startedAt = clock.now();
  }

  get isConnected(): boolean {
    return this.#client?.isConnected ?? false;
  }

  start(): void {
    const { id, broker, clock, random } = this.#options;
    const topics = this.#topics;
    for (const notice of this.#described.notices) this.#log({ level: 'warn', message: notice });
    this.#client = mqttClient({
      ...broker,
      clientId: `treadle-edge-${id}`,
      ...(clock && { clock }),
      ...(random && { random }),
      subscriptions: [topics.commands(id), topics.broadcast, topics.strategy(id)].map((topic) => ({ topic, qos: 1 })),
      will: {
        topic: topics.status(id),
        payload: this.#status('offline', 'the connection was lost'),
        qos: 1,
        retain: true,
      },
      onMessage: ({ topic, payload, retained }) => {
        // A command that a broker kept is from another time.
        if (!retained) this.#receive(topic, payload);
      },
      onConnect: ({ protocol }) => {
        this.#log({ level: 'info', message: 'connected', protocol: protocol === 5 ? '5' : '3.1.1' });
        void this.#introduce();
      },
      onProblem: (problem) => this.#log({ level: 'warn', message: 'no connection', why: problem }),
    });
  }

  async close(graceMs = 30_000): Promise<void> {
    this.#isDraining = true;
    for (const call of this.#queue.splice(0))
      void this.#settle(call, unavailable('The device is shutting down.', 'busy'));
    if (this.isConnected) await this.#publishStatus('draining');
    await this.#idle(graceMs);
    await this.#options.runner.close();
    if (this.isConnected) await this.#publishStatus('offline', 'it was shut down');
    await this.#client?.close();
    await this.#options.ledger.close();
  }

  /** Resolves when nothing runs. After the time, what runs is cancelled. */
  async #idle(graceMs: number): Promise<void> {
    const isIdle = (): boolean => this.#calls.size === 0;
    if (isIdle()) return;
    const idle = new Promise<void>((done) => (this.#onIdle = done));
    const cancelTimer = this.#clock.timer(graceMs, () => {
      for (const { controller } of this.#calls.values()) controller.abort();
    });
    await idle;
    cancelTimer();
  }

  async #introduce(): Promise<void> {
    if (await this.#hasLostLedger()) return;
    await this.#publishStatus(this.#isDraining ? 'draining' : 'online');
    await this.#publishCapabilities();
    for (const id of this.#options.ledger.unacknowledged()) {
      const report = await this.#recorded(id);
      if (!this.isConnected || !report) continue;
      await this.#publish(report);
    }
  }

  async #hasLostLedger(): Promise<boolean> {
    if (this.#hasLost) return true;
    if (!(await this.#options.ledger.isLost())) return false;
    this.#hasLost = true;
    const why = 'another process has opened the store of this device, or it was removed';
    this.#log({ level: 'warn', message: 'the device shuts down', why });
    this.#options.onShutdown?.(why);
    return true;
  }

  #status(status: DeviceStatus['status'], reason?: string): string {
    const { id, type } = this.#options;
    return encodeStatus({
      agent_id: id,
      ...(type !== undefined && { agent_type: type }),
      status,
      session: this.session,
      ledger: this.#options.ledger.id,
      timestamp: this.#clock.now(),
      ...(reason !== undefined && { reason }),
    });
  }

  async #publishStatus(status: DeviceStatus['status'], reason?: string): Promise<void> {
    const payload = this.#status(status, reason);
    await this.#client?.publish({ topic: this.#topics.status(this.id), payload, qos: 1, retain: true });
  }

  #capabilities(): Capabilities {
    const { id, type, maxParallel = MAX_PARALLEL, maxQueued = MAX_QUEUED } = this.#options;
    const { notices: _, ...described } = this.#described;
    return {
      agent_id: id,
      ...(type !== undefined && { agent_type: type }),
      session: this.session,
      ledger: true,
      limits: { parallel: maxParallel, queue: maxQueued },
      ...described,
    };
  }

  async #publishCapabilities(): Promise<void> {
    const payload = encodeCapabilities(this.#capabilities());
    await this.#client?.publish({ topic: this.#topics.capabilities(this.id), payload, qos: 1, retain: true });
  }

  #receive(topic: string, payload: Uint8Array): void {
    const parsed = this.#topics.parse(topic);
    if (parsed?.kind === 'strategy') return this.#refuseStrategy(payload);
    const decoded = decodeCommand(payload);
    if (decoded.type !== 'command') {
      const { requestId, problem, type } = decoded;
      this.#log({ level: 'warn', message: 'a command was refused', why: problem });
      if (requestId === undefined) return undefined;
      return this.#answer(requestId, unavailable(`The command was refused: ${problem}.`, REFUSALS[type]));
    }
    const { command } = decoded;
    if (parsed?.kind === 'broadcast' && command.type !== 'ping' && command.type !== 'tools_list') {
      return this.#answer(command.request_id, unavailable(`"${command.type}" is not for all devices.`, 'unsupported'));
    }
    return this.#execute(command);
  }

  #refuseStrategy(payload: Uint8Array): void {
    const parsed = parseMessage(payload);
    const id = 'value' in parsed ? requestIdIn(parsed.value) : undefined;
    this.#answer(id ?? 'strategy', unavailable('This device has no strategies.', 'unsupported'));
  }

  #execute(command: KnownCommand): void {
    const { request_id: id, ledger } = command;
    if (this.#hasLost && command.type !== 'ping') return undefined;
    if (ledger !== undefined && ledger !== this.#options.ledger.id) {
      const why = 'The command is for another ledger than that of this device, and was not executed.';
      return this.#answer(id, unavailable(why, 'other_ledger'));
    }
    const refusal = this.#refusalOf(command);
    switch (command.type) {
      case 'tool':
        return void this.#take(command, refusal).catch((error: Error) => this.#broken(id, error));
      case 'ops':
        return this.#operate(id, command.payload, refusal ?? this.#withoutSession(command));
      case 'ack':
        return void this.#options.ledger
          .acknowledge(command.payload.targets)
          .catch((error: Error) => this.#broken(id, error));
      case 'prompt':
        // The orchestrator answers it.
        return undefined;
      default:
        break;
    }
    if (refusal) return this.#answer(id, refusal);
    const { type } = command;
    const answer = async (): Promise<Outcome | undefined> => {
      switch (type) {
        case 'ping':
          return result(this.#load());
        case 'tools_list':
          return result(this.#capabilities() as unknown as Fields);
        case 'query':
          return (await this.#hasLostLedger()) ? undefined : result(await this.#about(command.payload.target));
        case 'cancel':
          return result(await this.#cancel(command.payload.target));
        case 'blob':
          return this.#part(command.payload);
        case 'skill':
          return result({ skills: await this.#skills(command.payload.action) });
        case 'shutdown':
          this.#options.onShutdown?.(command.payload.reason);
          return result({ draining: true });
        default:
          return type satisfies never;
      }
    };
    return void answer().then(
      (outcome) => outcome && this.#answer(id, outcome),
      (error: Error) => this.#answer(id, unavailable(error.message, 'execution_failed')),
    );
  }

  /** Why a command must not be executed, or undefined. */
  #refusalOf({ expires_at: expiresAt, session }: KnownCommand): Outcome | undefined {
    const now = this.#clock.now();
    if (expiresAt !== undefined && expiresAt < now) {
      return unavailable(`The command was delivered ${now - expiresAt} ms too late, and was not executed.`, 'expired');
    }
    if (session === undefined || session === this.session) return undefined;
    return unavailable('The device has been started again since. The command was not executed.', 'expired');
  }

  #withoutSession({ session }: KnownCommand): Outcome | undefined {
    return session === undefined
      ? unavailable('An operation has to name the session of the device.', 'invalid_params')
      : undefined;
  }

  /** Takes a call, or answers it with what is known about it. */
  async #take(
    { request_id: id, payload, expires_at: expiresAt }: Extract<KnownCommand, { type: 'tool' }>,
    refusal: Outcome | undefined,
  ): Promise<void> {
    const { ledger, maxQueued = MAX_QUEUED, maxParallel = MAX_PARALLEL, timeoutMs = TIMEOUT_MS } = this.#options;
    // It runs, and will be reported.
    if (this.#calls.has(id)) return;
    if (ledger.stateOf(id) !== undefined) {
      const report = await this.#recorded(id);
      const gone = 'The call was executed before. Its result was acknowledged, and is not kept any more.';
      return this.#publish(report ?? this.#report(id, payload.tool, unavailable(gone, 'interrupted')));
    }
    const receivedAt = this.#clock.now();
    const dueAt = receivedAt + (payload.timeout_ms ?? timeoutMs);
    const before = this.#refused.get(id);
    if (before && expiresAt !== undefined && expiresAt <= before.until) {
      return this.#publish(this.#report(id, payload.tool, before.why));
    }
    const full = ledger.whyFull();
    const isFull = this.#running >= maxParallel && this.#queue.length >= maxQueued;
    const why =
      refusal ??
      (this.#isDraining ? unavailable('The device is shutting down.', 'busy') : undefined) ??
      (isFull
        ? unavailable(`The device runs ${this.#running} calls, and ${this.#queue.length} wait.`, 'busy')
        : undefined) ??
      (full === undefined ? undefined : unavailable(`The device takes no calls: ${full}.`, 'busy'));
    if (why) {
      if (await this.#hasLostLedger()) return undefined;
      this.#refuse(id, why, expiresAt);
      return this.#publish(this.#report(id, payload.tool, why));
    }
    const call: OpenCall = {
      id,
      payload,
      receivedAt,
      dueAt,
      expiresAt,
      controller: new AbortController(),
      isRunning: false,
      stopWaiting: ignore,
    };
    this.#calls.set(id, call);
    this.#queue.push(call);
    this.#startNext();
    if (call.isRunning) return undefined;
    call.stopWaiting = this.#clock.timer(call.dueAt - receivedAt, () => {
      this.#queue.splice(this.#queue.indexOf(call), 1);
      void this.#settle(call, unavailable('The call waited for too long, and was not executed.', 'timeout'));
    });
    return undefined;
  }

  /** A command without an expiry may be another attempt: it is not known. */
  #refuse(id: string, why: Outcome, until: number | undefined): void {
    if (until === undefined) return;
    const now = this.#clock.now();
    for (const [other, { until: end }] of this.#refused) if (end < now) this.#refused.delete(other);
    this.#refused.set(id, { why, until });
    const [oldest] = this.#refused.keys();
    if (this.#refused.size > MAX_REMEMBERED) this.#refused.delete(oldest!);
  }

  #startNext(): void {
    const { maxParallel = MAX_PARALLEL } = this.#options;
    while (this.#running < maxParallel && this.#queue.length > 0) {
      const call = this.#queue.shift()!;
      this.#running++;
      call.isRunning = true;
      call.stopWaiting();
      void this.#run(call).finally(() => {
        this.#running--;
        this.#startNext();
      });
    }
  }

  async #run(call: OpenCall): Promise<void> {
    const { id, payload, dueAt, controller } = call;
    const { ledger, runner } = this.#options;
    const left = dueAt - this.#clock.now();
    if (left <= 0)
      return this.#settle(call, unavailable('The call waited for too long, and was not executed.', 'timeout'));
    try {
      await ledger.begin(id, payload.tool);
    } catch (error) {
      // The process that has the ledger answers.
      if (await this.#hasLostLedger()) return this.#drop(call);
      const why = `The device cannot record that the call begins (${(error as Error).message}), so it was not executed.`;
      return this.#settle(call, unavailable(why, 'execution_failed'));
    }
    const progress = progressSender((seq, part) => this.#sendProgress(id, seq, part), this.#clock);
    const startedAt = this.#clock.now();
    const outcome = await runner.call(
      { tool: payload.tool, parameters: payload.parameters, key: id, timeoutMs: left, signal: controller.signal },
      payload.stream === true ? progress.add : ignore,
    );
    progress.end();
    return this.#settle(call, outcome, this.#clock.now() - startedAt);
  }

  /** Records the result of a call, and reports it. */
  async #settle(call: OpenCall, outcome: Outcome, elapsedMs?: number): Promise<void> {
    const { id, payload } = call;
    const { ledger } = this.#options;
    call.stopWaiting();
    const report = this.#report(id, payload.tool, outcome, elapsedMs);
    // What never began need not be remembered, unless it was cancelled: then it must never begin.
    if (elapsedMs !== undefined || outcome.error_type === 'cancelled') {
      try {
        await ledger.end(report);
      } catch (error) {
        this.#log({
          level: 'warn',
          message: 'a result could not be recorded',
          request: id,
          why: (error as Error).message,
        });
      }
    } else this.#refuse(id, outcome, call.expiresAt);
    this.#calls.delete(id);
    await this.#publish(this.#reference(id) ?? report);
    this.#log({
      level: 'info',
      message: 'call',
      request: id,
      tool: payload.tool,
      result: outcome.error_type ?? 'success',
      ...(elapsedMs !== undefined && { elapsed_ms: elapsedMs }),
    });
    if (this.#calls.size === 0) this.#onIdle();
  }

  #drop({ id }: OpenCall): void {
    this.#calls.delete(id);
    if (this.#calls.size === 0) this.#onIdle();
  }

  async #cancel(target: string): Promise<Fields> {
    const call = this.#calls.get(target);
    const state = this.#options.ledger.stateOf(target);
    if (!call && state !== undefined && state !== 'running') return { state };
    if (call?.isRunning) {
      call.controller.abort();
      return { state: 'running' };
    }
    const cancelled = unavailable('The call was cancelled before it began.', 'cancelled');
    if (call) {
      this.#queue.splice(this.#queue.indexOf(call), 1);
      await this.#settle(call, cancelled);
    } else {
      // Its command may still be on its way.
      await this.#options.ledger.end(this.#report(target, '', cancelled));
    }
    return { state: 'cancelled' };
  }

  async #about(target: string): Promise<Fields> {
    const call = this.#calls.get(target);
    if (call) return { state: call.isRunning ? 'running' : 'queued' };
    const state: CallState | 'unknown' = this.#options.ledger.stateOf(target) ?? 'unknown';
    const report = await this.#recorded(target);
    return { state, ...(report && { report: report as unknown as Fields }) };
  }

  async #part({
    blob,
    offset,
    length,
  }: {
    readonly blob: string;
    readonly offset: number;
    readonly length: number;
  }): Promise<Outcome> {
    const bytes = await this.#options.ledger.readBlob(blob, offset, length);
    if (!bytes) return unavailable('This result is not kept any more.', 'expired');
    return result({ data: Buffer.from(bytes).toString('base64'), bytes: bytes.length });
  }

  async #skills(action: 'list' | 'reload' = 'list'): Promise<Described['skills']> {
    if (action === 'reload') {
      this.#described = await this.#options.runner.reload();
      await this.#publishCapabilities();
    }
    return this.#described.skills ?? [];
  }

  #load(): Fields {
    return {
      pong: true,
      running: this.#running,
      queued: this.#queue.length,
      uptime_s: Math.round((this.#clock.now() - this.#startedAt) / 1000),
      rss_bytes: process.memoryUsage.rss(),
    };
  }

  /** An operation is executed once by this start of the device. One that is delivered twice gets the same answer. */
  #operate(
    id: string,
    { op, args }: { readonly op: string; readonly args: Fields },
    refusal: Outcome | undefined,
  ): void {
    const refused =
      refusal ??
      (this.#described.ops ? undefined : unavailable('This device offers no files and programs.', 'unsupported'));
    const answer = this.#answers.once(id, async () =>
      this.#report(id, undefined, refused ?? (await this.#operation(op, args))),
    );
    const gone = 'The operation was executed before. Its answer is not kept any more.';
    void answer.then((report) =>
      report === 'gone' ? this.#answer(id, unavailable(gone, 'expired')) : this.#publish(report),
    );
  }

  async #operation(op: string, args: Fields): Promise<Outcome> {
    try {
      return result(await this.#options.runner.operate(op, args));
    } catch (error) {
      const { code, message, name, path } = error as NodeJS.ErrnoException;
      const type = name === 'DeniedError' ? 'permission_denied' : code === 'ENOENT' ? 'not_found' : 'execution_failed';
      return {
        ...unavailable(message, type),
        result: { name, ...(code !== undefined && { code }), ...(path !== undefined && { path }) },
      };
    }
  }

  #report(id: string, tool: string | undefined, outcome: Outcome, elapsedMs?: number): ResultReport {
    return {
      request_id: id,
      ...(tool !== undefined && { tool }),
      ...outcome,
      ...(elapsedMs !== undefined && { elapsed_ms: elapsedMs }),
      session: this.session,
      ledger: this.#options.ledger.id,
      timestamp: this.#clock.now(),
    };
  }

  /** The recorded report of a call, or a reference to it if it is too large for a message. Never rejects. */
  async #recorded(id: string): Promise<ResultReport | undefined> {
    const reference = this.#reference(id);
    if (reference) return reference;
    return this.#options.ledger.reportOf(id).catch((error: Error) => {
      this.#log({ level: 'warn', message: 'a result could not be read', request: id, why: error.message });
      const lost = `The call has ended, but its result cannot be read: ${error.message}`;
      return this.#report(id, undefined, unavailable(lost, 'interrupted'));
    });
  }

  #reference(id: string): ResultReport | undefined {
    const { ledger } = this.#options;
    const blob = ledger.blobOf(id);
    if (!blob) return undefined;
    const state = ledger.stateOf(id);
    return {
      request_id: id,
      status: state === 'done' ? 'success' : 'error',
      result_blob: blob,
      session: this.session,
      ledger: ledger.id,
    };
  }

  #answer(id: string, outcome: Outcome): void {
    void this.#publish(this.#report(id, undefined, outcome));
  }

  async #publish(report: ResultReport): Promise<void> {
    const payload = encodeReport(report);
    const most = Math.min(MAX_MESSAGE_BYTES, this.#client?.maxPayloadBytes ?? Infinity);
    const isTooLarge = Buffer.byteLength(payload) > most;
    const { request_id: id } = report;
    if (isTooLarge) this.#log({ level: 'warn', message: 'an answer is too large', request: id });
    const sent = isTooLarge
      ? encodeReport(this.#report(id, report.tool, unavailable('The answer is too large.', 'execution_failed')))
      : payload;
    await this.#client?.publish({ topic: this.#topics.reports(this.id), payload: sent, qos: 1 });
  }

  #sendProgress(id: string, seq: number, progress: unknown): void {
    const payload = encodeProgress({ request_id: id, seq, progress });
    if (Buffer.byteLength(payload) > MAX_MESSAGE_BYTES) return;
    void this.#client?.publish({ topic: this.#topics.reports(this.id), payload, qos: 0 });
  }

  #broken(id: string, error: Error): void {
    this.#log({ level: 'warn', message: 'a command failed', request: id, why: error.message });
  }
}

const REFUSALS = { invalid: 'invalid_params', unsupported: 'unsupported' } as const;

function result(fields: Fields): Outcome {
  return { status: 'success', result: fields };
}

function unavailable(error: string, type: ReportErrorType): Outcome {
  return { status: 'error', error, error_type: type };
}

function ignore(): void {}
