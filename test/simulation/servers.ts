import type { treadleServer, TreadleServerOptions } from '@treadle/server';
import { keyedModel } from '../crash/keyed-model.ts';
import type { Cause } from './expected-errors.ts';
import type { Parts } from './jobs.ts';
import type { Host, Process } from './machine.ts';
import { deliverRequest, type SentRequest } from './replaced/http.ts';
import { delayedModel, policyOf, scriptOf, SERVED, simulatedTools } from './runs.ts';
import { OUTSIDE } from './scheduler.ts';
import type { Told } from './told.ts';
import { createWriters } from './writers.ts';

/**
 * Processes with the real server, and clients that send requests to any of them. A client remembers all that it was told: that
 * must be durable when the bytes leave the server.
 */
export interface Servers {
  readonly startProcess: () => void;
  /** A client does something now. */
  readonly act: () => void;
  /** All requests have ended, and all clients know it. */
  readonly isOver: () => boolean;
  readonly describeOpen: () => string;
}

export interface ServerCode {
  readonly treadleServer: typeof treadleServer;
}

/** A response that somebody wants, once, however often and by whom it is asked for. */
interface Wish {
  readonly key: string;
  /** It is sent to a conversation, which is created for it. */
  readonly chats: boolean;
  readonly isStreaming: boolean;
  /** What the first was told who asked for them. */
  conversation?: string;
  id?: string;
  /** Somebody has deleted it, or is about to. */
  isDeleted: boolean;
}

/** Some clients want the same, with the same idempotency key. */
interface Client {
  readonly name: string;
  readonly wish: Wish;
  /** What this client was told. */
  conversation?: string;
  id?: string;
  status?: string;
  /** The last event that it has received. */
  lastEvent: number;
  /** A request of it has no answer yet: the process that has it. */
  busy?: Process | undefined;
  /** It does nothing any more. */
  hasLeft: boolean;
}

interface Answer {
  readonly status: number;
  readonly body: Body;
  /** Somebody was shown the run before the request was sent. */
  readonly wasShown: boolean;
}

/** The fields of answers and events that clients look at. */
interface Body {
  readonly id?: string;
  readonly status?: string;
  readonly object?: string;
  readonly deleted?: boolean;
  readonly entries?: number;
  readonly type?: string;
  readonly sequence_number?: number;
  readonly response?: Body;
  readonly data?: readonly { readonly seq?: number }[];
  readonly error?: { readonly code?: string | null; readonly message?: string };
}

/** Writes nothing. */
const SILENT = {
  level: 'silent',
  child: () => SILENT,
  isLevelEnabled: () => false,
  ...Object.fromEntries(['trace', 'debug', 'info', 'warn', 'error', 'fatal'].map((level) => [level, () => {}])),
} as unknown as NonNullable<TreadleServerOptions['log']>;

/** The process that drives a run does not do what is asked for, now or later. */
const DRIVEN_ELSEWHERE = 'run_driven_elsewhere';

const ENDED = ['completed', 'failed', 'cancelled', 'incomplete'];

/** Which causes explain that a server does not do what a client wants. */
const UNAVAILABLE: readonly Cause[] = ['full', 'locked', 'sync', 'crash', 'power', 'stall', 'suspend', 'clock'];

/** The statuses of answers about what was deleted. */
const GONE = [404, 409];

export function createServers(parts: Parts, told: Told, { treadleServer: create }: ServerCode): Servers {
  const { world, checks, machines, causes, isCalm, report } = parts;
  const { scheduler, cover } = world;
  const { random, after, log, within } = scheduler;
  const script = scriptOf(random, random.between(1, 2), SERVED);
  const wishes = Array.from({ length: random.pick([1, 1, 2, 2]) }, (_, index): Wish => ({
    key: `key${index}`,
    chats: random.chance(0.4),
    isStreaming: random.chance(0.5),
    isDeleted: false,
  }));
  const wanted = wishes.length === 1 && random.chance(0.5) ? [...wishes, ...wishes] : wishes;
  const clients = wanted.map((wish, index): Client => ({
    name: `client${index}`,
    wish,
    lastEvent: -1,
    hasLeft: false,
  }));
  const writers = createWriters(parts, told);
  let [started, marks] = [0, 0];
  /** How often processes still stall although all other faults may have stopped. */
  let stalls = 2;

  function startProcess(): void {
    const process = machines.start();
    if (++started > 1) causes.add('rivals');
    const server = within(process, () =>
      create({
        models: { default: 'keyed', models: new Map([['keyed', delayedModel(world, process, keyedModel(script))]]) },
        store: { ...process.store, inbox: slowInbox(process) },
        tools: simulatedTools(world, process),
        defaultTools: [...new Set(SERVED)],
        policy: policyOf(world, process),
        waitForAnswers: true,
        chatTitles: false,
        log: SILENT,
      }),
    );
    after(process, random.between(0, 50), 'listens', () => {
      server.listen().catch((error: unknown) => {
        if (!process.alive) return;
        log(`${process.name} does not start: ${String(error)}`);
        const isExplained = UNAVAILABLE.some((cause) => causes.has(cause));
        if (!isExplained) report(error as Error);
        machines.kill(process);
      });
    });
  }

  /** A process can stall at any time, alone or with its host: rather when it is about to do what others ask for. */
  function slowInbox(process: Process): Process['store']['inbox'] {
    const { inbox } = process.store;
    return {
      ...inbox,
      async open() {
        const open = await inbox.open();
        const isAsked = open.some(({ runId }) => checks.isDriver(runId, process));
        if (!isAsked || stalls === 0 || random.chance(0.5)) return open;
        stalls--;
        const ms = random.between(2_000, 8_000);
        if (random.chance(0.7)) world.block(process, ms);
        else suspend(process.host, ms);
        return open;
      },
    };
  }

  function suspend(host: Host, ms: number): void {
    cover('suspended host');
    causes.add('suspend');
    machines.suspend(host, ms);
  }

  /** Sends a request. `onEvent` gets what leaves the server: the events of a stream, or the answer. */
  function request(client: Client, process: Process, sent: SentRequest, onEvent: (event: Body) => void): void {
    const isAside = client.busy?.alive === true;
    if (!isAside) client.busy = process;
    let [status, wasShown] = [0, false];
    let body: Body | undefined;
    const isFollowing = sent.path.includes('stream=true') || (sent.body as { stream?: boolean } | undefined)?.stream;
    after(process, random.next() * 20, `${client.name} sends ${sent.method} ${labelOf(sent.path)}`, () => {
      wasShown = (checks.runs.get(client.id!)?.shown ?? 0) > 0;
      const close = deliverRequest(process, sent, {
        onHead: (given) => (status = given),
        onData(json) {
          // Nothing leaves a process that has died.
          if (!process.alive) return;
          body = json as Body;
          onEvent(body);
        },
        onEnd(isComplete) {
          if (!process.alive) return;
          after(OUTSIDE, random.next(), `${client.name} has its answer: ${status}`, () => {
            if (!isAside) client.busy = undefined;
            if (isComplete && body) answered(client, sent, { status, body, wasShown });
          });
        },
      });
      // Some clients do not wait.
      if (isFollowing && random.chance(0.3)) after(process, random.between(10, 2_000), 'a client disconnects', close);
    });
  }

  function answered(client: Client, sent: SentRequest, answer: Answer): void {
    const { status, body } = answer;
    if (status === 200) return;
    const about = `${client.name}: ${sent.method} ${labelOf(sent.path)} is answered with ${status} ${body.error?.code}`;
    log(about);
    cover(`answered with ${status} ${body.error?.code}`);
    if (!isExplained(client, answer)) report(new Error(`${about}: ${body.error?.message}`));
  }

  /** An error is accepted only if something in this schedule is its cause. */
  function isExplained({ wish }: Client, { status, body, wasShown }: Answer): boolean {
    const isUnavailable = UNAVAILABLE.some((cause) => causes.has(cause));
    switch (body.error?.code) {
      // It has ended, or is resumed soon.
      case 'run_not_running':
        return true;
      // A run that has not started yet, or that a power failure has taken back, does not exist.
      case 'run_not_found':
        return !wasShown || wish.isDeleted;
      // Its process is silent, or has another time, so that what it is asked for has expired.
      case DRIVEN_ELSEWHERE:
      case 'response_in_progress':
      case 'conversation_busy':
        return isUnavailable || new Set(machines.hosts.map(({ offset }) => offset)).size > 1;
      default:
        return status < 500 ? wish.isDeleted && GONE.includes(status) : isUnavailable;
    }
  }

  /** Checks what a client has just been told. */
  function learn(client: Client, body: Body): void {
    try {
      const response = body.response ?? (body.object === 'response' ? body : undefined);
      if (body.sequence_number !== undefined && client.id !== undefined) {
        told.tell('stream', streamOf(client.id), body.sequence_number + 1);
        client.lastEvent = Math.max(client.lastEvent, body.sequence_number);
        cover('event of a stream');
      }
      if (response?.id !== undefined && !body.deleted) learnResponse(client, response.id, response.status);
      if (body.deleted) told.tellDeleted(body.object === 'response' ? 'request' : 'conversation', body.id!);
      if (body.object === 'conversation') {
        learnId(client, 'conversation', body.id!);
        told.tell('conversation', body.id!);
      }
      if (body.object === 'run') checks.onShown(body.id!, body.entries!);
      const last = body.data?.at(-1)?.seq;
      if (last !== undefined) checks.onShown(client.id!, last + 1);
    } catch (error) {
      report(error as Error);
    }
  }

  /** All who use the same key are told of the same. */
  function learnId(client: Client, what: 'id' | 'conversation', id: string): void {
    const { name, wish } = client;
    client[what] = id;
    wish[what] ??= id;
    if (wish[what] !== id && !wish.isDeleted) {
      throw new Error(`${name} was told of ${id} for ${wish.key}, and somebody was told of ${wish[what]}`);
    }
  }

  function learnResponse(client: Client, id: string, status: string | undefined): void {
    learnId(client, 'id', id);
    if (status === undefined || !ENDED.includes(status)) return told.tell('request', id);
    told.tell('request', id, status);
    client.status = status;
    cover(`response ${status}`);
  }

  function act(): void {
    writers.act();
    const client = random.pick(clients);
    const processes = machines.processes();
    client.hasLeft ||= client.wish.isDeleted;
    if (processes.length === 0 || client.hasLeft) return;
    const process = random.pick(processes);
    if (!client.busy?.alive) next(client, process);
    // While it waits for something else.
    else if (client.id !== undefined && client.status === undefined && !isCalm() && random.chance(0.5))
      steer(client, process);
  }

  function next(client: Client, process: Process): void {
    const { id, conversation, wish } = client;
    const { chats, key } = wish;
    const send = (method: string, path: string, body?: object, headers?: Record<string, string>): void =>
      request(client, process, { method, path, ...(body && { body }), ...(headers && { headers }) }, (event) =>
        learn(client, event),
      );
    if (chats && conversation === undefined) {
      return send('POST', '/v1/conversations', {}, { 'idempotency-key': `${key}-conversation` });
    }
    if (id === undefined) {
      const body = { input: `Do it for ${key}.`, background: true, stream: wish.isStreaming };
      return send('POST', '/v1/responses', { ...body, ...(chats && { conversation }) }, { 'idempotency-key': key });
    }
    if (client.status !== undefined) return finish(client, send);
    const what = random.next();
    if (what < 0.3) return send('GET', `/v1/responses/${id}`);
    if (what < 0.55) {
      const from = client.lastEvent < 0 ? '' : `&starting_after=${client.lastEvent}`;
      return send('GET', `/v1/responses/${id}?stream=true${from}`);
    }
    if (what < 0.7) return send('GET', `/v1/runs/${id}${random.pick(['/events', '/events', ''])}`);
    if (what > 0.95 && !isCalm()) return cancel(client, process);
    if (what > 0.8 && !isCalm()) return steer(client, process);
    return send('GET', `/v1/responses/${id}`);
  }

  function cancel(client: Client, process: Process): void {
    const id = client.id!;
    const api = random.pick(['responses', 'runs']);
    checks.onCancel(id, 'asked');
    request(client, process, { method: 'POST', path: `/v1/${api}/${id}/cancel` }, (body) => {
      // The other answer says no more than that the response is in progress.
      if (api === 'runs' && body.error?.code === DRIVEN_ELSEWHERE) refuse(() => checks.onCancel(id, 'refused'));
      else learn(client, body);
    });
  }

  function refuse(note: () => void): void {
    cover('refused by another process');
    note();
  }

  /** Sends a message to the run, wherever it is driven: rather through another process. */
  function steer(client: Client, given: Process): void {
    const mark = `note ${++marks}`;
    const others = machines.processes().filter((one) => !checks.isDriver(client.id!, one));
    const process = others.length > 0 && random.chance(0.7) ? random.pick(others) : given;
    request(
      client,
      process,
      { method: 'POST', path: `/v1/runs/${client.id!}/input`, body: { input: mark } },
      (body) => {
        const refused = (): void => checks.onSaid(client.id!, mark, false);
        if (body.object === 'run.input') checks.onSaid(client.id!, mark, true);
        else if (body.error?.code === 'run_not_running') refused();
        else if (body.error?.code === DRIVEN_ELSEWHERE) refuse(refused);
        // The driver may still take it, if it has not replied in time.
      },
    );
  }

  /** A client that knows the end of its response deletes it, or looks at it once more. */
  function finish(client: Client, send: (method: string, path: string) => void): void {
    client.hasLeft = true;
    if (random.chance(0.5)) return;
    client.wish.isDeleted = true;
    checks.deletable.add(client.id!);
    if (client.conversation !== undefined) return send('DELETE', `/v1/conversations/${client.conversation}`);
    send('DELETE', `/v1/responses/${client.id!}`);
  }

  function isDone({ id, status, wish, hasLeft, busy }: Client): boolean {
    return hasLeft && !busy?.alive && (wish.isDeleted || id === undefined || status !== undefined);
  }

  function areEnded(): boolean {
    return [...told.requests().values()].every((status) => ENDED.includes(status as string));
  }

  return {
    startProcess,
    act,
    isOver: () => clients.every(isDone) && areEnded(),
    describeOpen: () =>
      clients
        .filter((client) => !isDone(client))
        .map(({ name, id, status }) => `${name} has not come to an end: ${id} is ${status}`)
        .join('; ') || 'requests are in progress although all faults have stopped',
  };
}

/** Ids are random. */
function labelOf(path: string): string {
  return path.replaceAll(/_[0-9a-f]{8,}/g, '');
}

/** The stream of a response. */
function streamOf(id: string): string {
  return `events_${id}`;
}
