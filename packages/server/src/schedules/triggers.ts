import { createHash, timingSafeEqual } from 'node:crypto';
import { existsSync, globSync, statSync, watch, type FSWatcher } from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { messageOf, stableJson, systemClock, TreadleError, type Clock, type RunStatus } from '@treadle/core';
import type { RunNotice, StoredSchedule } from '@treadle/store';
import { ApiError, isTemporary } from '../api-error.ts';
import type { Invocations, StoredInvocation } from '../apis/agents/invocations.ts';
import type { Engine } from '../engine/engine.ts';
import { signingKey, webhookSignature, type NoticeHandler } from '../engine/webhooks.ts';
import type { Caller } from '../http/admission.ts';
import { bodyDigest } from '../requests/idempotency.ts';
import { SCHEDULE_NAME } from './definition.ts';

/*
 * Events that start runs: a signed request, the end of another run, a file that has changed.
 *
 * Each event starts at most one run: it is the key of the request, as long as the run is stored. An event is kept until its run was
 * started: by the sender of the request, who repeats it, as a notice of the run that has ended, or as the state of the files.
 */

/** What starts a workflow or an agent. Exactly one of `webhook`, `after` and `file`. */
export interface TriggerOptions {
  readonly name: string;
  /** One of both. */
  readonly workflow?: string | undefined;
  readonly agent?: string | undefined;
  /** Texts may contain expressions over the event: `${{ event.body.ref }}`. Default: the body of a webhook, otherwise none. */
  readonly inputs?: Readonly<Record<string, unknown>> | undefined;
  /** The key of the server as which its runs are started. Required if there are keys. */
  readonly key?: string | undefined;
  /** `POST /v1/triggers/{name}`, signed as Standard Webhooks say: any text of at least 16 characters, or `whsec_` and base64. */
  readonly webhook?: { readonly secret: string } | undefined;
  /** A run of this workflow or agent has ended. */
  readonly after?: string | undefined;
  /** How it has ended; default `completed`. */
  readonly status?: readonly EndStatus[] | undefined;
  /** An absolute path or pattern of files of this machine. One that is added, changed or removed is an event. */
  readonly file?: string | undefined;
}

export type EndStatus = 'completed' | 'failed' | 'exhausted' | 'cancelled';

const STATUSES: readonly EndStatus[] = ['completed', 'failed', 'exhausted', 'cancelled'];

/** Throws for triggers that cannot work. */
export function checkTriggers(triggers: readonly TriggerOptions[]): void {
  const wrong = (name: string, why: string): TreadleError =>
    new TreadleError('invalid-options', `The trigger ${JSON.stringify(name)} ${why}`);
  const names = new Set<string>();
  for (const { name, workflow, agent, webhook, after, file, status } of triggers) {
    if (!SCHEDULE_NAME.test(name)) throw wrong(name, 'needs a name of letters, digits, hyphens and underscores.');
    if (names.has(name)) throw wrong(name, 'is defined twice. Rename one.');
    names.add(name);
    if ((workflow === undefined) === (agent === undefined)) throw wrong(name, 'needs either a workflow or an agent.');
    if ([webhook, after, file].filter((one) => one !== undefined).length !== 1) {
      throw wrong(name, 'needs one of a secret for a webhook, "after" and "file".');
    }
    if (status !== undefined && after === undefined)
      throw wrong(name, 'has a status, which is for "after". Remove it.');
    const unknown = status?.find((one) => !STATUSES.includes(one));
    if (unknown !== undefined || status?.length === 0) {
      throw wrong(name, `has the status ${JSON.stringify(unknown ?? [])}. Use some of ${STATUSES.join(', ')}.`);
    }
    if (webhook && signingKey(webhook.secret).length < 16) {
      throw wrong(name, 'needs a secret of at least 16 characters, or whsec_ and the base64 of at least 16 bytes.');
    }
  }
  const cycle = cycleIn(triggers);
  if (cycle) throw wrong(cycle, 'starts what it comes after, so that it would start runs without end.');
}

/** A trigger from whose target its own beginning is reached. */
function cycleIn(triggers: readonly TriggerOptions[]): string | undefined {
  const next = (name: string): readonly string[] =>
    triggers.flatMap(({ after, workflow, agent }) => (after === name ? [(workflow ?? agent)!] : []));
  return triggers.find(({ after, workflow, agent }) => {
    const seen = new Set<string>();
    const open = after === undefined ? [] : [(workflow ?? agent)!];
    for (let name = open.pop(); name !== undefined; name = open.pop()) {
      if (name === after) return true;
      if (!seen.has(name)) open.push(...next(name));
      seen.add(name);
    }
    return false;
  })?.name;
}

export interface Triggers {
  /** Instead of the earlier ones. Throws if one of them cannot be used. */
  configure(triggers: readonly TriggerOptions[]): void;
  /** Begins to watch files. Rejects for inputs that are not valid. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Starts the run of a signed request. Resolves to its id. Throws an `ApiError`. */
  receive(name: string, request: ReceivedEvent): Promise<{ readonly run: string; readonly agent: string }>;
  /** Starts runs for those that have ended. Undefined: no trigger is about any. */
  handler(): NoticeHandler | undefined;
}

export interface ReceivedEvent {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly bytes: Buffer;
  readonly parse: () => Promise<unknown>;
}

export interface TriggersOptions {
  readonly engine: Pick<Engine, 'store' | 'log'>;
  readonly invocations: Pick<Invocations, 'prepare'>;
  /** Resolves when the end of a request is stored, if this process drives it. */
  readonly whenEnded: (id: string) => Promise<void>;
  /** The caller as which a trigger starts its runs. Throws if its key is not valid. */
  readonly callerOf: (trigger: { readonly name: string; readonly key: string }) => Caller;
  readonly clock?: Clock;
}

/** How much the time of a request may differ from that of the server. */
const CLOCK_SKEW_MS = 300_000;
/** How often to look at files without being told, and how long one must not have changed. */
const LOOK_MS = 30_000;
const QUIET_MS = 1_000;
const RETRY_MS = 5_000;
const MOST_FILES = 10_000;

export function eventTriggers({
  engine,
  invocations,
  whenEnded,
  callerOf,
  clock = systemClock,
}: TriggersOptions): Triggers {
  const { store, log } = engine;
  let triggers: readonly TriggerOptions[] = [];
  let isStarted = false;

  /** Starts the run of an event, once for its id. */
  async function begin(trigger: TriggerOptions, id: string, event: object): Promise<string> {
    const { name, workflow, agent: named, key = '', inputs: given } = trigger;
    const agent = (workflow ?? named)!;
    const { inputsForEvent } = await import('@treadle/tools/workflows');
    const { body } = event as { readonly body?: unknown };
    const whole = isTable(body) ? body : {};
    const inputs = given === undefined ? whole : await inputsForEvent(given, event).catch(unfit);
    // No client can send it, because it contains spaces.
    const once = { key: `trigger ${name} ${id}`, digest: bodyDigest('triggers', { name, id }), isKept: true } as const;
    const request = { agent, mode: 'iterative', inputs, options: {}, background: true } as const;
    const answer = await (await invocations.prepare(request, callerOf({ name, key }), once)).start();
    if (answer.type === 'failed') throw answer.error;
    const run = answer.type === 'result' ? answer.result.run_id : answer.unfinished.run_id;
    log.info({ trigger: name, run }, 'a trigger has started a run');
    return run;
  }

  /** For events that nobody sends again. Resolves to why the start has to be repeated later. */
  async function beginUnsent(trigger: TriggerOptions, id: string, event: object): Promise<string | undefined> {
    try {
      await begin(trigger, id, event);
      return undefined;
    } catch (error) {
      if (isTemporary(error)) return messageOf(error);
      log.error({ trigger: trigger.name, why: messageOf(error) }, 'the run of a trigger was not started');
      return undefined;
    }
  }

  /* The end of another run */

  function handler(): NoticeHandler | undefined {
    const after = triggers.filter((one) => one.after !== undefined);
    if (after.length === 0) return undefined;
    const statuses = new Set(after.flatMap(({ status = ['completed'] }): readonly RunStatus[] => status));
    return { statuses: [...statuses], handle: (notice) => runEnded(after, notice) };
  }

  async function runEnded(
    after: readonly TriggerOptions[],
    { runId, status, seq }: RunNotice,
  ): Promise<string | undefined> {
    const head = await store.requests.headOfRun(runId);
    // It is stored a moment after the run has ended.
    if (head) await whenEnded(head.id);
    const record = head?.kind === 'invocation' ? await store.requests.get(head.tenant, head.id) : undefined;
    if (!head || !record) return undefined;
    const { agent } = record.request as StoredInvocation;
    for (const trigger of after) {
      const { after: name, status: wanted = ['completed'], key = '' } = trigger;
      if (name !== agent || !wanted.includes(status as EndStatus)) continue;
      // What runs of one tenant do must not start runs of another.
      if (tenantOf(trigger.name, key) !== head.tenant) continue;
      if (record.status === 'in_progress') return 'Its end is not stored yet.';
      const { output = null } =
        ((record.response ?? {}) as { readonly result?: { readonly output?: unknown } }).result ?? {};
      const event = { type: 'run', run_id: runId, workflow: agent, status, output };
      const problem = await beginUnsent(trigger, `${runId} ${seq}`, event);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  function tenantOf(name: string, key: string): string | undefined {
    try {
      return callerOf({ name, key }).tenant;
    } catch {
      return undefined;
    }
  }

  /* Signed requests */

  async function receive(name: string, { headers, bytes, parse }: ReceivedEvent): ReturnType<Triggers['receive']> {
    const trigger = triggers.find((one) => one.name === name && one.webhook);
    if (!trigger) {
      const message = `There is no trigger ${JSON.stringify(name)} for requests.`;
      throw new ApiError(404, 'not_found_error', message, { code: 'trigger_not_found' });
    }
    const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures } = headers;
    if (
      typeof id !== 'string' ||
      !/^[!-~]{1,200}$/.test(id) ||
      typeof timestamp !== 'string' ||
      typeof signatures !== 'string'
    ) {
      throw unsigned('Send the headers webhook-id, webhook-timestamp and webhook-signature, as Standard Webhooks say.');
    }
    const expected = Buffer.from(webhookSignature(trigger.webhook!.secret, { id, timestamp, body: bytes }));
    const isSigned = signatures.split(' ').some((one) => {
      const sent = Buffer.from(one.replace(/^v1,/, ''));
      return one.startsWith('v1,') && sent.length === expected.length && timingSafeEqual(sent, expected);
    });
    if (!isSigned) throw unsigned('The signature of the request is not valid. Check the secret.');
    if (!(Math.abs(Number(timestamp) * 1_000 - clock.now()) <= CLOCK_SKEW_MS)) {
      throw unsigned('The time of the request differs by more than 5 minutes from that of the server. Send it anew.');
    }
    const run = await begin(trigger, id, { type: 'webhook', id, body: await parse() });
    return { run, agent: (trigger.workflow ?? trigger.agent)! };
  }

  /* Files */

  let watchers: FSWatcher[] = [];
  let cancelTimer = (): void => {};
  let looking: Promise<void> | undefined;
  let isAskedAgain = false;

  function follow(): void {
    for (const one of watchers) one.close();
    watchers = triggers.flatMap(({ file }) => {
      // One that does not exist is looked for now and then.
      const { folder, rest } = file === undefined ? { folder: '', rest: '' } : fixedFolder(file);
      if (file === undefined || !existsSync(folder)) return [];
      const recursive = rest.includes('/');
      return watch(folder, { recursive, persistent: false }, () => lookIn(QUIET_MS)).on('error', () => {});
    });
    lookIn(0);
  }

  function lookIn(ms: number): void {
    if (!isStarted || !triggers.some(({ file }) => file !== undefined)) return;
    if (looking) isAskedAgain = true;
    cancelTimer();
    cancelTimer = clock.timer(ms, () => {
      looking ??= look().finally(() => (looking = undefined));
    });
  }

  async function look(): Promise<void> {
    isAskedAgain = false;
    let ms = LOOK_MS;
    for (const trigger of triggers) {
      if (trigger.file === undefined || !isStarted) continue;
      try {
        ms = Math.min(ms, await lookAtFiles(trigger, trigger.file));
      } catch (error) {
        log.error({ err: error, trigger: trigger.name }, 'the files of a trigger could not be looked at');
        ms = RETRY_MS;
      }
    }
    cancelTimer();
    if (isStarted) cancelTimer = clock.timer(isAskedAgain ? QUIET_MS : ms, () => lookIn(0));
  }

  /** Resolves to when to look again. */
  async function lookAtFiles(trigger: TriggerOptions, pattern: string): Promise<number> {
    const [tenant, name] = ['', `files ${trigger.name} ${hostname()} ${pattern}`];
    const stored = await store.schedules.get(tenant, name);
    const known = (stored?.state as FileState | undefined)?.stamps ?? {};
    const { stamps, isQuiet } = stampsOf(pattern, clock.now(), known);
    if (!stored) {
      // What was there before the trigger is no event.
      await store.schedules.add({ tenant, name, definition: { pattern }, state: { stamps, pending: [] } });
      return isQuiet ? LOOK_MS : QUIET_MS;
    }
    const before = stored.state as FileState;
    const changes = changesBetween(before.stamps, stamps);
    const pending = [...before.pending, ...changes];
    // Of several servers on this machine, one records the changes. All may start them, which happens once.
    if (changes.length > 0 && !(await store.schedules.change(stored, content(stored, { stamps, pending }))))
      return QUIET_MS;
    const left: FileChange[] = [];
    for (const change of pending) {
      const { path, stamp } = change;
      const id = createHash('sha256')
        .update(stableJson([path, stamp, change.change]))
        .digest('hex');
      if ((await beginUnsent(trigger, id, { type: 'file', path, change: change.change })) !== undefined)
        left.push(change);
    }
    const now = await store.schedules.get(tenant, name);
    if (now && pending.length > left.length && stableJson((now.state as FileState).pending) === stableJson(pending)) {
      await store.schedules.change(now, content(now, { ...(now.state as FileState), pending: left }));
    }
    return left.length > 0 ? RETRY_MS : isQuiet ? LOOK_MS : QUIET_MS;
  }

  return {
    configure(given) {
      checkTriggers(given);
      triggers = given;
      if (isStarted) follow();
    },
    async start() {
      const withInputs = triggers.filter(({ inputs }) => inputs !== undefined);
      if (withInputs.length > 0) {
        const { eventInputProblems } = await import('@treadle/tools/workflows');
        for (const { name, inputs } of withInputs) {
          const [problem] = eventInputProblems(inputs!);
          if (problem === undefined) continue;
          throw new TreadleError('invalid-options', `The inputs of the trigger "${name}" are not valid. ${problem}`);
        }
      }
      isStarted = true;
      follow();
    },
    async stop() {
      isStarted = false;
      cancelTimer();
      for (const one of watchers) one.close();
      await looking;
    },
    receive,
    handler,
  };
}

/** What is known of the files, and what has changed and was not started yet. */
interface FileState {
  readonly stamps: Readonly<Record<string, string>>;
  readonly pending: readonly FileChange[];
}

interface FileChange {
  readonly path: string;
  readonly change: 'added' | 'changed' | 'removed';
  /** Of the file as it is now, or of one that was removed as it was. */
  readonly stamp: string;
}

function content({ definition }: StoredSchedule, state: FileState): Pick<StoredSchedule, 'definition' | 'state'> {
  return { definition, state };
}

/** `isQuiet`: no file has changed just now. One that has may not be complete, and is what it was `before`. */
function stampsOf(
  pattern: string,
  now: number,
  before: FileState['stamps'],
): { readonly stamps: Readonly<Record<string, string>>; readonly isQuiet: boolean } {
  const stamps: Record<string, string> = {};
  let isQuiet = true;
  for (const path of globSync(pattern).slice(0, MOST_FILES).sort()) {
    const found = statSync(path, { throwIfNoEntry: false });
    if (!found?.isFile()) continue;
    const stamp = `${found.mtimeMs} ${found.size}`;
    const isNew = Math.abs(now - found.mtimeMs) < QUIET_MS && stamp !== before[path];
    isQuiet &&= !isNew;
    const known = isNew ? before[path] : stamp;
    if (known !== undefined) stamps[path] = known;
  }
  return { stamps, isQuiet };
}

function changesBetween(before: FileState['stamps'], now: FileState['stamps']): readonly FileChange[] {
  const paths = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
  return paths.flatMap((path): readonly FileChange[] => {
    const [was, is] = [before[path], now[path]];
    if (was === is) return [];
    if (is === undefined) return [{ path, change: 'removed', stamp: was! }];
    return [{ path, change: was === undefined ? 'added' : 'changed', stamp: is }];
  });
}

/** The folder that a pattern begins with. */
function fixedFolder(pattern: string): { readonly folder: string; readonly rest: string } {
  const [fixed = ''] = /^[^*?{[]*/.exec(pattern) ?? [];
  const folder = dirname(fixed.endsWith('/') ? `${fixed}x` : fixed);
  return { folder, rest: pattern.slice(folder.length + 1) };
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function unfit(error: unknown): never {
  throw new ApiError(422, 'invalid_request_error', messageOf(error), { code: 'invalid_inputs' });
}

function unsigned(message: string): ApiError {
  return new ApiError(401, 'authentication_error', message, { code: 'invalid_signature' });
}
