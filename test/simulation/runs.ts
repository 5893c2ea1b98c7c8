import type * as core from '@treadle/core';
import type {
  FilterAnswer,
  FilteredResult,
  LoopOptions,
  Policy,
  ResultFilter,
  Tool,
  ToolContext,
  ToolEffect,
  Touch,
  Verification,
  Waiting,
} from '@treadle/core';
import { sleepTool } from '@treadle/core/timers';
import { keyedModel, type Said, type Script } from '../crash/keyed-model.ts';
import type { Execution, Ledger } from './ledger.ts';
import type { Process } from './machine.ts';
import type { Random, Scheduler } from './scheduler.ts';

export type Core = typeof core;

/** A run as the world outside wants it: any process can start or resume it. */
export interface Plan {
  readonly runId: string;
  readonly script: Script;
  /** Of the child runs. */
  readonly childScript: Script;
  readonly input: string;
  /** It draws on the budget that all runs share. */
  readonly isBudgeted: boolean;
  /** Its results are filtered, and what it touches exposes it. */
  readonly isFiltered: boolean;
  /** What its listener receives is shown to people. */
  readonly isShown: boolean;
  /** Before it pauses, it waits for answers for a while. */
  readonly lingers: boolean;
  readonly options: Pick<
    LoopOptions,
    'limits' | 'maxTurns' | 'crashLimit' | 'parallel' | 'maxResultChars' | 'toolTimeoutMs'
  >;
}

/** How often a call that ends its process may be attempted. */
export const CRASH_LIMIT = 2;

/** Options of all runs. */
const SHARED = { crashLimit: CRASH_LIMIT, maxResultChars: 200, toolTimeoutMs: 200_000 };

interface ToolKind {
  readonly effect: ToolEffect;
  /** Returns its result synchronously. */
  readonly sync?: true;
  readonly verify?: 'verify' | 'fenced';
  readonly timeoutMs?: number;
  /** Ignores a timeout. */
  readonly stubborn?: true;
  readonly long?: true;
  readonly parks?: true;
  /** Asks a person before it acts. */
  readonly asks?: true;
  /** Holds a process of its own while the run is driven. */
  readonly holds?: true;
  readonly ends?: 'process';
  readonly touches?: readonly Touch[];
  /** Runs in a sandbox, which does not promise the same in all processes. */
  readonly boxed?: true;
}

const KINDS: Readonly<Record<string, ToolKind>> = {
  look: { effect: 'pure', sync: true },
  search: { effect: 'pure', touches: [{ type: 'url', url: 'https://a.test/' }] },
  list: { effect: 'pure', long: true, touches: [{ type: 'read', path: '/list' }] },
  put: { effect: 'idempotent' },
  stamp: { effect: 'once', sync: true },
  pay: { effect: 'once' },
  wire: { effect: 'once', verify: 'verify' },
  bank: { effect: 'once', verify: 'fenced' },
  order: { effect: 'once', verify: 'verify', timeoutMs: 2_000 },
  send: { effect: 'once', timeoutMs: 2_000, stubborn: true },
  remove: { effect: 'once', verify: 'fenced' },
  forbid: { effect: 'once' },
  job: { effect: 'idempotent', parks: true },
  ask: { effect: 'idempotent', asks: true },
  shell: { effect: 'idempotent', holds: true },
  box: { effect: 'idempotent', boxed: true },
  bomb: { effect: 'pure', sync: true, ends: 'process' },
};

/** Each is as probable as its number of mentions. */
const USUAL = 'look look search search list put put stamp pay pay wire wire wire bank order send job'.split(' ');
const RARE =
  'remove remove pick forbid child child child wire bank pay ask ask shell shell nap nap box box box box box box'.split(
    ' ',
  );
/** The tools of servers. */
export const SERVED: readonly string[] = USUAL.filter((name) => name !== 'job');
/** The tool that hands a run over to another agent. */
const HANDOFF = 'hand_off_to_second';

/** Long enough to be stored once for all runs that contain them. */
const LONG_TEXTS = ['alpha', 'omega'].map((word) => ` ${word}`.repeat(210));

/** The budget of runs that have one. */
export const BUDGET = 'team';

/** A new run: two to four turns with up to three calls each. `nested`: often with child runs. */
export function planRun(random: Random, runId: string, nested: boolean): Plan {
  const durationMs = random.chance(0.1) ? random.between(1_000, 60_000) : undefined;
  const isLong = random.chance(0.2);
  const text = isLong ? random.pick(LONG_TEXTS) : '';
  return {
    runId,
    script: scriptOf(random, random.between(1, 3), namesOf(random, nested), text),
    childScript: scriptOf(random, random.between(1, 2), [...USUAL, 'remove', 'ask']),
    input: `Do it.${text}`,
    isBudgeted: random.chance(0.25),
    isFiltered: random.chance(0.15),
    isShown: random.chance(0.15),
    lingers: random.chance(0.3),
    options: {
      ...SHARED,
      parallel: random.chance(0.8),
      ...(random.chance(0.1) && { maxTurns: random.between(1, 2) }),
      ...(durationMs !== undefined && { limits: { durationMs } }),
    },
  };
}

function namesOf(random: Random, nested: boolean): readonly string[] {
  if (random.chance(0.5)) return [...USUAL, ...RARE];
  return nested ? ['child', 'child', 'wire', 'pay', 'put'] : USUAL;
}

/** More replies than turns: people may send something while the run ends. */
export function scriptOf(random: Random, turns: number, names: readonly string[], text = ''): Script {
  const last = `It is done.${text}`;
  const said: Said[] = Array.from({ length: turns }, (_, turn) => {
    if (random.chance(0.03)) return { calls: [['bomb', { what: `bomb ${turn}` }]] };
    const count = random.pick([1, 1, 1, 2, 2, 3]);
    return {
      calls: Array.from({ length: count }, (__, index) => {
        const name = random.pick(names);
        const what = `${name} ${turn}.${index}`;
        if (name === 'nap') return [name, { seconds: random.between(2, 40) }];
        return [name, name === 'child' ? { task: what } : { what }];
      }),
    };
  });
  if (random.chance(0.06)) said.splice(random.between(0, turns - 1), 0, { calls: [[HANDOFF, {}]] });
  return Object.fromEntries([...said, last, last, last, last].map((reply, turn) => [`t${turn + 1}.model.0`, reply]));
}

/** What tools, models and policies of a process use of the world. */
export interface World {
  readonly core: Core;
  readonly scheduler: Scheduler;
  readonly ledger: Ledger;
  /** Many calls take longer than a lease. */
  readonly slow: boolean;
  readonly kill: (process: Process) => void;
  /** Blocks the event loop of a process. */
  readonly block: (process: Process, ms: number) => void;
  /** Checks that the call may start. */
  readonly onStart: (execution: Execution) => void;
  /** Checks that the model may be asked. */
  readonly onAsked: (key: string, process: Process) => void;
  /** Checks that somebody may be asked for what the run waits for. */
  readonly onWaits: (runId: string, waiting: readonly Waiting[]) => void;
  /** Checks that the call may act, and whether its process is still the driver of the run. */
  readonly isStale: (execution: Execution) => boolean | undefined;
  /** Checks the ledger. */
  readonly onAct: (key: string) => void;
  /** Checks that the resource is recorded before the call has it. */
  readonly onHeld: (key: string, resource: Resource) => void;
  /** The processes that tools have started. They survive the process that drives their run. */
  readonly resources: Resource[];
  readonly cover: (what: string) => void;
}

/** A process that a tool has started for its run. */
export interface Resource {
  readonly id: string;
  readonly runId: string;
  readonly process: Process;
  open: boolean;
}

/** The code of a run in one process. */
export function codeOf(world: World, process: Process, plan: Plan): Omit<LoopOptions, 'input'> {
  const { script, childScript } = plan;
  const { tool, agentTool, handoff } = world.core;
  const { after, random } = world.scheduler;
  const policy = policyOf(world, process);
  const codeFor = (replies: Script): Omit<LoopOptions, 'input'> => {
    const names = [...namesIn(replies)];
    const model = delayedModel(world, process, keyedModel(replies));
    const tools = names.filter((name) => name !== HANDOFF).map(toolNamed);
    const second = { name: 'second', instructions: 'Go on.', tools, model };
    return { model, tools: names.includes(HANDOFF) ? [...tools, handoff(second)] : tools, policy };
  };
  const toolNamed = (name: string): Tool => {
    if (name === 'nap') return sleepTool({ name, clock: process.clock });
    if (name === 'pick') return tool({ name, description: name, input: WHAT });
    if (name !== 'child') return simulatedTool(world, process, name, KINDS[name]!);
    return agentTool({ name, description: name, ...codeFor(childScript), ...SHARED });
  };
  const beforePause = (waiting: readonly Waiting[]): Promise<void> => {
    world.onWaits(plan.runId, waiting);
    const { promise, resolve } = Promise.withResolvers<void>();
    after(process, random.between(1, 3_000), 'has waited for answers', resolve);
    return promise;
  };
  return {
    ...codeFor(script),
    killProcess: ({ startedAt, host }) => killResource(world, process, startedAt, host),
    ...(plan.isBudgeted && { ledger: process.store.budgets.ledger([BUDGET]) }),
    ...(plan.isFiltered && {
      resultFilters: [filterOf(world, process)],
      exposes: ({ type }: Touch) => (type === 'read' ? 'private' : undefined),
    }),
    ...(plan.lingers && { beforePause }),
  };
}

/** What the sandbox of a process promises. */
export function promisesIn({ holder }: Process): readonly string[] {
  return holder.pid % 2 === 0 ? [] : ['network'];
}

/** Redacts all results, and refuses some that are pure. What it has not seen contains "did". */
function filterOf({ scheduler: { after, random } }: World, process: Process): ResultFilter {
  const answerTo = ({ content, call }: FilteredResult): FilterAnswer => {
    if (call.name === 'look') return { type: 'refused', reason: 'not this' };
    return {
      type: 'changed',
      content: content.map((block) =>
        'text' in block ? { ...block, text: block.text.replaceAll('did', 'has') } : block,
      ),
    };
  };
  return {
    name: 'redact',
    filter(result) {
      if (random.chance(0.5)) return answerTo(result);
      const { promise, resolve } = Promise.withResolvers<FilterAnswer>();
      after(process, random.between(1, 900), `the result of ${result.effect} is filtered`, () =>
        resolve(answerTo(result)),
      );
      return promise;
    },
  };
}

export function simulatedTools(world: World, process: Process): readonly Tool[] {
  return [...new Set(SERVED)].map((name) => simulatedTool(world, process, name, KINDS[name]!));
}

/** Processes can be ended only on their own host. */
function killResource({ resources, cover }: World, process: Process, id?: string, host?: string): boolean {
  if (host !== process.host.name) return false;
  const found = resources.find((one) => one.id === id);
  if (found?.open) cover('killed resource');
  if (found) found.open = false;
  return true;
}

/** Only the tools that a script calls: their schemas are in the journal and cost time. */
function namesIn(script: Script): ReadonlySet<string> {
  return new Set(
    Object.values(script).flatMap((said) =>
      typeof said === 'object' && 'calls' in said ? said.calls!.map(([name]) => name) : [],
    ),
  );
}

const WHAT = { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] } as const;

export function delayedModel(
  { scheduler: { after, random }, onAsked }: World,
  process: Process,
  model: LoopOptions['model'],
): LoopOptions['model'] {
  return {
    ...model,
    reply(...asked) {
      onAsked(asked[0].key, process);
      const { promise, resolve } = Promise.withResolvers<Awaited<ReturnType<typeof model.reply>>>();
      const ms = random.chance(0.04) ? random.between(5_000, 45_000) : random.between(1, 900);
      after(process, ms, `the model replies to ${asked[0].key}`, () => resolve(model.reply(...asked)));
      return promise;
    },
  };
}

export function policyOf({ scheduler: { after, random } }: World, process: Process): Policy {
  return {
    judge(calls) {
      const verdicts = calls.map(({ name, sandbox }) => {
        if (name === 'box' && !sandbox?.includes('network')) return { type: 'ask', ttlMs: 600_000 } as const;
        if (name === 'forbid') return { type: 'deny', reason: 'no' } as const;
        return name === 'remove' ? ({ type: 'ask', ttlMs: 600_000 } as const) : ({ type: 'allow' } as const);
      });
      if (random.chance(0.7)) return verdicts;
      const { promise, resolve } = Promise.withResolvers<typeof verdicts>();
      after(process, random.between(1, 50), 'the policy judges', () => resolve(verdicts));
      return promise;
    },
  };
}

/** Starts, acts some time later, and returns some time after that. Its process can die at any of these moments. */
function simulatedTool(world: World, process: Process, name: string, kind: ToolKind): Tool {
  const { core, scheduler, ledger, onStart, isStale, onAct, cover } = world;
  const { random, after, now, log } = scheduler;
  const { effect, sync, verify, timeoutMs } = kind;

  function actOnce(execution: Execution, signal: AbortSignal): void {
    const { key, token } = execution;
    // A timeout has no reason. All other tools respect their signal, and all of them after another process took over.
    const timedOut = signal.aborted && (signal.reason as Error).message !== 'The run was detached.';
    const driven = process.driving.get(rootOf(key));
    const isSameDriver = driven !== undefined && driven.since <= execution.at;
    if (signal.aborted && !(kind.stubborn && timedOut && isSameDriver)) return;
    const stale = isStale(execution) === true;
    if (verify === 'fenced' && (!ledger.admits(key, token) || ledger.has(key))) return cover('fenced off');
    log(`${process.name}: ${key} acts`);
    ledger.record({ ...execution, stale });
    onAct(key);
  }

  function resultOf({ key, input }: Execution): unknown {
    if (kind.long) return `${input} `.repeat(60);
    const parked = kind.parks && ledger.acts.filter((act) => act.key === key).length < 2;
    return parked ? new core.Parked(`device/${input}`) : `${name} did ${input}`;
  }

  function later<T>(label: string, ms: number, value: () => T): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<T>();
    after(process, ms, label, () => resolve(value()));
    return promise;
  }

  function openResource(key: string): Promise<Resource> {
    return later(`${key} opens a resource`, random.between(1, 60), () => {
      const runId = key.slice(0, key.lastIndexOf('/'));
      const resource: Resource = { id: `r${world.resources.length}`, runId, process, open: true };
      world.resources.push(resource);
      return resource;
    });
  }

  async function hold({ hold: holdResource, key }: ToolContext): Promise<void> {
    const { resource } = await holdResource(
      'shell',
      () => openResource(key),
      (one) => later('closes a resource', random.between(0, 30), () => (one.open = false)),
      { process: ({ id }) => ({ pid: 1, startedAt: id, host: process.host.name }) },
    );
    cover('resource');
    world.onHeld(key, resource);
  }

  async function ask({ ask: askPerson }: ToolContext, what: string): Promise<void> {
    await askPerson({ prompt: what, id: 'which' });
    cover('question');
  }

  function execute({ what }: { readonly what: string }, context: ToolContext): unknown {
    const { key, lease = 0, signal } = context;
    const execution: Execution = { key, tool: name, effect, input: what, token: lease, process, at: now() };
    log(`${process.name}: ${key} starts ${name} with token ${lease}`);
    onStart(execution);
    if (kind.ends) world.kill(process);
    if (sync) {
      actOnce(execution, signal);
      // A synchronous tool can block the event loop.
      if (random.chance(0.05)) world.block(process, random.between(1_000, 40_000));
      return resultOf(execution);
    }
    const ms = random.chance(world.slow ? 0.4 : 0.12) ? random.between(1_500, 120_000) : random.between(1, 400);
    const prepared = kind.asks ? ask(context, what) : kind.holds ? hold(context) : undefined;
    const middle = (): Promise<void> => later(`${key} is in the middle`, ms, () => actOnce(execution, signal));
    return (prepared ? prepared.then(middle) : middle()).then(() =>
      later(`${key} returns`, random.chance(0.1) ? random.between(100, 20_000) : random.between(0, 20), () =>
        resultOf(execution),
      ),
    );
  }

  function verifyCall({ what }: { readonly what: string }, { key, lease = 0 }: ToolContext): Promise<Verification> {
    cover('verification');
    return later(`${key} is verified`, random.between(1, 100), (): Verification => {
      if (verify === 'fenced') ledger.admits(key, lease);
      if (random.chance(0.05)) return { type: 'unknown' };
      return ledger.has(key) ? { type: 'done', result: `${name} did ${what}` } : { type: 'not-done' };
    });
  }

  return core.tool({
    name,
    description: name,
    input: WHAT,
    effect,
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(verify && { verify: verifyCall as never }),
    ...(kind.touches && { touches: () => kind.touches! }),
    ...(kind.boxed && { sandbox: () => promisesIn(process) }),
    execute: execute as never,
  });
}

/** The run that a key or the id of a child run belongs to. */
export function rootOf(key: string): string {
  return /^[^./]+/.exec(key)![0];
}
