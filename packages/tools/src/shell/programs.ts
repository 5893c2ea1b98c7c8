import { randomBytes } from 'node:crypto';
import { TreadleError, type HeldProcess, type ToolContext } from '@treadle/core';
import type { ExecOps, ExecRequest, Execution, Room, SandboxFacts } from '../ops.ts';

/**
 * The programs that a run has started, and those before it in its conversation. All of them have the same mark, and are killed when
 * the run is not driven any more, unless the next run of the conversation gets them.
 */
interface Programs {
  readonly process: HeldProcess;
  /** `exec`: inside the sandbox or outside. */
  start(exec: ExecOps, request: ExecRequest): Promise<Execution>;
  isBusy(): boolean;
  close(): Promise<void>;
}

/** Tries to get the programs of the run. A try fails if another call, which was first to open them, cannot start its program. */
const MAX_TRIES = 5;

/**
 * Starts a program for a call. The first one of a run is recorded with the mark of the run, so that all of them are killed
 * when the run is resumed after its process was killed. They may outlive the call.
 */
export async function startForCall(exec: ExecOps, given: ExecRequest, context: ToolContext): Promise<Execution> {
  const { signal, narrowedBy, traceparent } = context;
  const room = await roomFor(exec, context);
  const env = traceparent === undefined ? given.env : { ...given.env, TRACEPARENT: traceparent };
  const request = { ...given, ...(env && { env }), ...(room && { room }), ...(narrowedBy && { narrowedBy }) };
  for (let tries = 1; ; tries++) {
    signal.throwIfAborted();
    let isFirst = false;
    let first: Execution | undefined;
    let programs: Programs;
    const mark = newMark();
    const marked = exec.markedProcess?.(mark);
    try {
      const held = await context.hold(
        'bash programs',
        async () => {
          isFirst = true;
          first = await exec.start({ ...request, mark });
          return openPrograms(exec, mark, first);
        },
        (open: Programs) => open.close(),
        { process: (open) => open.process, ...(marked && { marked }), isBusy: (open) => open.isBusy(), passes: true },
      );
      programs = held.resource;
    } catch (error) {
      if (error instanceof TreadleError && error.code === 'no-run') return startAlone(exec, request);
      if (isFirst || tries === MAX_TRIES) throw error;
      continue;
    }
    return first ?? programs.start(exec, request);
  }
}

/**
 * What the programs of a run share in a sandbox, with those before it in its conversation. Undefined without a sandbox, and
 * without a run: then each program is alone.
 */
export async function roomFor({ sandbox }: ExecOps, { hold }: ToolContext): Promise<Room | undefined> {
  if (!sandbox) return undefined;
  try {
    const held = await hold(
      `sandbox room ${numberOf(sandbox)}`,
      () => sandbox.openRoom(),
      (room) => room.close(),
      { isBusy: (room) => room.isBusy(), passes: true },
    );
    return held.resource;
  } catch (error) {
    if (error instanceof TreadleError && error.code === 'no-run') return undefined;
    throw error;
  }
}

/** A room means nothing to another sandbox, such as the one after a configuration was reloaded. */
const numbers = new WeakMap<SandboxFacts, number>();
let lastNumber = 0;

function numberOf(sandbox: SandboxFacts): number {
  const number = numbers.get(sandbox) ?? ++lastNumber;
  numbers.set(sandbox, number);
  return number;
}

/** Starts a program without a run. Nothing can be held there, so what it leaves behind is killed when it exits. */
async function startAlone(exec: ExecOps, request: ExecRequest): Promise<Execution> {
  const execution = await exec.start(request);
  void execution.exit.then(() => execution.kill()).catch(() => {});
  return execution;
}

/** Machines that have no bash. */
const withoutBash = new WeakSet<ExecOps>();

/** Starts something with bash, or with sh where there is no bash. */
export async function withShell<T>(exec: ExecOps, start: (shell: 'bash' | 'sh') => Promise<T>): Promise<T> {
  if (!withoutBash.has(exec)) {
    try {
      return await start('bash');
    } catch (error) {
      const { code, path } = error as NodeJS.ErrnoException;
      if (code !== 'ENOENT' || path !== 'bash') throw error;
      withoutBash.add(exec);
    }
  }
  return start('sh');
}

export function newMark(): string {
  return randomBytes(16).toString('hex');
}

function openPrograms(exec: ExecOps, mark: string, first: Execution): Programs {
  const running = new Set<Execution>();
  let isClosed = false;
  const add = (execution: Execution): void => {
    running.add(execution);
    void execution.exit.then(() => running.delete(execution));
  };
  add(first);
  return {
    process: { ...first.process, mark },
    async start(machine, request) {
      const execution = await machine.start({ ...request, mark });
      if (isClosed) {
        await execution.kill();
        throw new Error('The run is not driven any more, so the program was killed.');
      }
      add(execution);
      return execution;
    },
    isBusy: () => running.size > 0,
    async close() {
      isClosed = true;
      await Promise.all(Array.from(running, (execution) => execution.kill()));
      await exec.killMarked(mark);
    },
  };
}
