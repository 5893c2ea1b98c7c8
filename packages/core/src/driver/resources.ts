import type { messageOf } from '../errors.ts';
import type { slotFor } from '../machine/effects.ts';
import type { Event, RunStarted } from '../machine/events.ts';
import type { HeldProcess } from '../machine/resources.ts';
import type { Execution, RunningCall } from '../tools/execute.ts';
import type { Held, HoldRequest } from '../tools/tool.ts';
import type { KeptResource } from './options.ts';
import type { HeldResources, RunContext } from './perform.ts';

/*
 * Resources of a run: browsers, shells, connections. This is loaded when a tool holds one for the first time. It imports
 * only types, as questions.ts does.
 *
 * 1. A resource is opened by the first call that holds it. Later and concurrent calls get the same one.
 * 2. It is closed when the run is not driven any more, whatever the reason, and before another process may drive the run.
 *    It is also closed when no call has used it for `holdIdleMs`; the next call opens a new one. If the run has ended or paused,
 *    and its tool allows it, it is passed to `kept` instead, which gives it to the next run of the conversation, or back to the
 *    run when this process resumes it. Another process that resumes it kills the process of the resource first.
 * 3. The process of a resource is recorded before any call gets the resource, and its mark before it is opened. One that is taken
 *    over is recorded in `run-started`.
 * 4. A failure to open one is an error of the call, and the next call tries again. A failure to close one is reported.
 */

const MINUTE = 60_000;

const DEFAULT_IDLE_MS = 5 * MINUTE;

/** The time in which a resource has to be closed. */
const CLOSE_MS = 10_000;

interface Resource {
  readonly name: string;
  readonly opened: Promise<unknown>;
  readonly close: (resource: unknown) => unknown;
  readonly isBusy: ((resource: unknown) => boolean) | undefined;
  readonly passes: boolean;
  /** Set when it is open. */
  value: { readonly it: unknown } | undefined;
  /** Its process, if it is recorded. */
  process: HeldProcess | undefined;
  /** The calls that use it, until they end. */
  readonly users: Set<Execution>;
  cancelTimer: (() => void) | undefined;
}

interface OpenResources extends HeldResources {
  readonly hold: (execution: Execution, request: HoldRequest) => Promise<Held<unknown>>;
  readonly adopt: (taken: KeptResource) => void;
}

/** Gives a new run what the last run of its conversation has left. Returns its first events, with the processes in the start. */
export function takeKept(
  run: HoldingRun,
  [started, ...others]: readonly Event[],
  taken: readonly KeptResource[],
): readonly Event[] {
  const { runId } = run.context;
  adoptKept(run, taken);
  const processes = taken.flatMap(({ name, process }) => (process ? { runId, name, process } : []));
  return [{ ...(started as RunStarted), ...(processes.length > 0 && { resources: processes }) }, ...others];
}

/** Gives a run that is resumed what it left when it paused. */
export function adoptKept(run: HoldingRun, taken: readonly KeptResource[]): void {
  const resources = openResources(run);
  run.context.held = resources;
  for (const one of taken) resources.adopt(one);
}

/** Gives a running tool a resource of its run. */
export async function holdResource(run: HoldingRun, call: RunningCall, request: HoldRequest): Promise<Held<unknown>> {
  const { execution, signal } = call;
  checkRequest(execution, request);
  const { context } = run;
  if (signal.aborted || !isRunning(run, execution)) {
    throw new Error(`The call of "${execution.tool.name}" has ended, so it cannot hold "${request.name}".`);
  }
  const resources = (context.held ??= openResources(run)) as OpenResources;
  return resources.hold(execution, request);
}

/** A run, and functions of the core. */
export interface HoldingRun {
  readonly context: RunContext;
  readonly slotFor: typeof slotFor;
  readonly messageOf: typeof messageOf;
}

/** Whether the tool is called or verified, and its call has no result yet. */
function isRunning({ context, slotFor: find }: HoldingRun, { key }: Execution): boolean {
  const effect = key.slice(context.runId.length + 1);
  const state = context.state();
  const type = find(state, effect)?.type;
  return (
    type === 'running' || type === 'questioning' || find(state, effect.replace('.tool.', '.verify.')) !== undefined
  );
}

function openResources({ context, messageOf: textOf }: HoldingRun): OpenResources {
  const { runId, clock, options, emit } = context;
  const { holdIdleMs = DEFAULT_IDLE_MS } = options;
  const open = new Map<string, Resource>();
  /** Those that are being closed, by name. The next one of the name is opened after that. */
  const closing = new Map<string, Promise<void>>();

  async function hold(execution: Execution, request: HoldRequest): Promise<Held<unknown>> {
    const known = open.get(request.name);
    const resource = known ?? openResource(request);
    resource.users.add(execution);
    resource.cancelTimer?.();
    resource.cancelTimer = undefined;
    return { resource: await resource.opened, isNew: known === undefined };
  }

  function openResource({ name, open: make, close, process, marked, isBusy, passes }: HoldRequest): Resource {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const resource: Resource = {
      name,
      opened: promise,
      close,
      isBusy,
      passes: passes === true,
      value: undefined,
      process: undefined,
      users: new Set(),
      cancelTimer: undefined,
    };
    open.set(name, resource);
    void (async () => {
      await closing.get(name);
      if (marked) await recordProcess(resource, marked);
      const value = await make();
      try {
        if (process) await recordProcess(resource, process(value));
      } catch (error) {
        await closeValue(resource, value);
        throw error;
      }
      resource.value = { it: value };
      return value;
    })().then(resolve, (error: unknown) => {
      // The next call tries again.
      if (open.get(name) === resource) open.delete(name);
      reject(error);
    });
    // Only the calls that hold it are told.
    promise.catch(() => {});
    return resource;
  }

  async function recordProcess(resource: Resource, given: HeldProcess): Promise<void> {
    const { name } = resource;
    const { pid, startedAt, host, group, mark } = given ?? {};
    if (!(Number.isSafeInteger(pid) || (pid === undefined && mark))) {
      throw new Error(`The process of the resource "${name}" has neither a pid nor a mark.`);
    }
    const process: HeldProcess = {
      ...(pid !== undefined && { pid }),
      ...(startedAt !== undefined && { startedAt: String(startedAt) }),
      ...(host !== undefined && { host: String(host) }),
      ...(group && { group: true }),
      ...(mark !== undefined && { mark: String(mark) }),
    };
    const recorded = await context.record({ type: 'resource-opened', at: clock.now(), runId, name, process });
    if (recorded !== true) throw new Error(`The run has ended, so the resource "${name}" is closed.`);
    resource.process = process;
  }

  /** Closes it with a time limit, also if it is still being opened. Never rejects. */
  async function closeResource(resource: Resource): Promise<void> {
    const { name, opened, users } = resource;
    resource.cancelTimer?.();
    open.delete(name);
    users.clear();
    const limit = Promise.withResolvers<string>();
    const cancelLimit = clock.timer(CLOSE_MS, () => limit.resolve(`it was not closed within ${CLOSE_MS} ms`));
    const closed = opened.then(
      (value) => closeValue(resource, value),
      // It was never opened.
      () => undefined,
    );
    const problem = await Promise.race([closed, limit.promise]);
    cancelLimit();
    if (problem !== undefined) emit?.({ type: 'resource-problem', name, problem });
  }

  async function closeValue({ close }: Resource, value: unknown): Promise<string | undefined> {
    try {
      await close(value);
      return undefined;
    } catch (error) {
      return textOf(error);
    }
  }

  function closeIdleLater(resource: Resource): void {
    resource.cancelTimer = clock.timer(holdIdleMs, () => {
      if (resource.isBusy?.(resource.value?.it)) closeIdleLater(resource);
      else closeIdle(resource);
    });
  }

  function closeIdle(resource: Resource): void {
    const { name } = resource;
    const work = closeResource(resource).then(async () => {
      if (resource.process) await context.record({ type: 'resource-closed', at: clock.now(), name });
    });
    // If the journal fails, the run stops.
    const settled = work.catch(() => {}).then(() => void closing.delete(name));
    closing.set(name, settled);
  }

  return {
    hold,
    callEnded(execution) {
      for (const resource of open.values()) {
        if (!resource.users.delete(execution) || resource.users.size > 0 || holdIdleMs === 0) continue;
        closeIdleLater(resource);
      }
    },
    adopt({ name, value, close, isBusy, process }) {
      const resource: Resource = {
        name,
        opened: Promise.resolve(value),
        close,
        isBusy,
        passes: true,
        value: { it: value },
        process,
        users: new Set(),
        cancelTimer: undefined,
      };
      open.set(name, resource);
      if (holdIdleMs !== 0) closeIdleLater(resource);
    },
    async endRun(kept, isPaused) {
      const left = kept ? Array.from(open.values()).filter(({ passes, value }) => passes && value) : [];
      for (const { name, cancelTimer } of left) {
        cancelTimer?.();
        open.delete(name);
      }
      await Promise.all([...Array.from(open.values(), closeResource), ...closing.values()]);
      await kept?.keep(runId, left.map(keptOf), isPaused);
    },
  };
}

function keptOf({ name, value, close, isBusy, process }: Resource): KeptResource {
  return { name, value: value!.it, close, ...(isBusy && { isBusy }), ...(process && { process }) };
}

function checkRequest({ tool }: Execution, { name, open, close, process }: HoldRequest): void {
  if (typeof name !== 'string' || name === '') {
    throw new Error(`The tool "${tool.name}" holds a resource without a name. Call hold(name, open, close).`);
  }
  if ([open, close, process ?? close].every((part) => typeof part === 'function')) return;
  throw new Error(`The tool "${tool.name}" holds "${name}" without functions to open and close it.`);
}
