import type {
  Answer,
  Autonomy,
  Exposure,
  FilterAnswer,
  Guardrail,
  Guardrails,
  LoopOptions,
  Model,
  ModelReply,
  Policy,
  PrepareTurn,
  ResultFilter,
  StandardSchema,
  Tool,
  ToolContext,
  ToolEffect,
  Waiting,
} from '@treadle/core';
import { policy, type PolicyRules } from '@treadle/core/policy';
import {
  turnScriptOf,
  fateOf,
  firstReplyOf,
  nextApprover,
  outputVerdict,
  replyOf,
  modelEvent,
  SUMMARY,
  turnOf,
  waitsIn,
} from './answers.ts';
import type { AgentCode, Core } from './core.ts';
import { EXPOSED } from './drive.ts';
import { MOST_TOKENS } from './live-budget.ts';
import type { ManualScheduler } from './manual-scheduler.ts';
import { callsOf, hasRules, type Fate, type World } from './world.ts';

/** Called when an effect starts, with its id. `effect`: that of the tool that it calls or verifies. */
export type OnStart = (type: Performed, id: string, effect?: ToolEffect) => void;

/** Types of effects that the driver performs. */
export type Performed =
  | 'call-model'
  | 'prepare-turn'
  | 'compact-history'
  | 'validate-output'
  | 'judge-calls'
  | 'check-guardrails'
  | 'call-tool'
  | 'verify-tool'
  /** The verification that belongs to a call that timed out. */
  | 'verify-timeout';

/** The rules of a world as options, without those that `runLoop` rejects. */
export function optionsOf({ rules, tools, input, memory, narrow, grants, facts }: World): Omit<LoopOptions, 'model'> {
  const {
    wording: _,
    judged: __,
    prepared: ___,
    budgeted,
    references: ________,
    errorTypes: ______,
    marks: _________,
    output: ____,
    allowedTools: given,
    toolChoice: choice,
    agent: _____,
    guardrails: _______,
    finish,
    ...plain
  } = rules;
  const names = tools.map(({ name }) => name);
  const allowed = given?.filter((name) => names.includes(name)) ?? [];
  const possible = allowed.length > 0 ? allowed : names;
  const toolChoice = typeof choice === 'object' && !possible.includes(choice.tool) ? 'auto' : choice;
  return {
    ...plain,
    ...(finish !== 'output' && { finish }),
    ...(budgeted && { settings: { maxOutputTokens: MOST_TOKENS } }),
    input,
    ...(memory && { memory }),
    ...(narrow && { narrow }),
    ...((grants ?? facts?.session) && {
      carried: { ...(grants && { grants }), ...(facts?.session && { exposure: EXPOSED }) },
    }),
    ...facts,
    toolChoice,
    ...(allowed.length > 0 && { allowedTools: allowed }),
  };
}

/** If the answer must be JSON, all text is JSON. */
export function modelOf(world: World, { later }: ManualScheduler, onStart: OnStart, name: string): Model {
  return {
    id: name,
    priced: true,
    ...(world.rules.references && { usesTokens: false }),
    reply({ key }, _, signal) {
      const id = effectIn(key);
      onStart('call-model', id);
      const { type, effect: __, at: ___, ...reply } = modelEvent(firstReplyOf(world, id), id, 0) as Spoken;
      const content = 'content' in reply ? reply.content : [];
      const json = content.map((part) =>
        part.type === 'text' && world.rules.output ? { ...part, text: JSON.stringify(part.text) } : part,
      );
      const given =
        type === 'model-failed' ? { ...reply, type: 'failure' } : { ...reply, type: 'reply', content: json };
      return later(given as ModelReply, signal);
    },
  };
}

export function summariserOf(world: World, { later }: ManualScheduler, onStart: OnStart): Model {
  return {
    id: 'summariser',
    priced: true,
    reply({ key }, _, signal) {
      const id = effectIn(key);
      onStart('compact-history', id);
      const { summary } = turnScriptOf(world, turnOf(id));
      const reply: ModelReply =
        summary.type === 'failure'
          ? { type: 'failure', error: { code: 'overloaded', message: 'no summary', retryable: true } }
          : {
              type: 'reply',
              content: [{ type: 'text', text: SUMMARY }],
              finish: 'stop',
              usage: summary.usage,
              model: 'summariser',
            };
      return later(reply, signal);
    },
  };
}

/** Decides only about tools that exist. */
export function prepareTurnOf(world: World, { later }: ManualScheduler, onStart: OnStart): PrepareTurn {
  const names = world.tools.map(({ name }) => name);
  return ({ turn }) => {
    onStart('prepare-turn', `t${turn}.prepare.0`);
    const { decision, unprepared } = turnScriptOf(world, turn);
    if (unprepared) throw new Error('it went wrong');
    const { toolChoice: choice, tools, ...rest } = decision;
    const toolChoice = typeof choice === 'object' && !names.includes(choice.tool) ? undefined : choice;
    const made = {
      ...rest,
      ...(tools && { tools: tools.filter((name) => names.includes(name)) }),
      ...(toolChoice && { toolChoice }),
    };
    return turn % 2 === 0 ? made : later(made);
  };
}

/** `latest`: the newest validation that was issued. */
export function outputOf(
  world: World,
  { later }: ManualScheduler,
  onStart: OnStart,
  latest: () => string,
): StandardSchema {
  return {
    '~standard': {
      version: 1,
      vendor: 'world',
      jsonSchema: { input: () => ({ type: 'string' }) },
      validate(value) {
        const id = latest();
        onStart('validate-output', id);
        const { valid } = turnScriptOf(world, turnOf(id));
        const verdict = valid ? { value } : { issues: [{ message: 'it is wrong' }] };
        return turnOf(id) % 2 === 0 ? verdict : later(verdict);
      },
    },
  };
}

/** The code of a typed agent. `latest`: the newest validation that was issued. */
export function agentOf(
  world: World,
  { later }: ManualScheduler,
  onStart: OnStart,
  latest: () => string,
): AgentCode | undefined {
  const { agent: rules } = world.rules;
  return (
    rules && {
      rules,
      check(_, __, signal) {
        const id = latest();
        onStart('validate-output', id);
        const verdict = outputVerdict(turnScriptOf(world, turnOf(id)));
        return turnOf(id) % 2 === 0 ? Promise.resolve(verdict) : later(verdict, signal);
      },
    }
  );
}

/** `latest`: the newest check that was issued. */
export function guardrailsOf(
  world: World,
  { later }: ManualScheduler,
  onStart: OnStart,
  latest: () => string,
): Guardrails {
  const guardrail =
    (index: number): Guardrail =>
    ({ signal }) => {
      const id = latest();
      if (index === 0) onStart('check-guardrails', id);
      const verdict = turnScriptOf(world, turnOf(id)).guards[index] ?? ({ type: 'pass' } as const);
      return turnOf(id) % 2 === 0 ? verdict : later(verdict, signal);
    };
  const both = [guardrail(0), guardrail(1)];
  const { input, output } = world.rules.guardrails ?? {};
  return { ...(input && { input: both }), ...(output && { output: both }) };
}

type Spoken = Extract<ReturnType<typeof modelEvent>, { effect: string }>;

interface Judging {
  readonly isOpen: (id: string) => boolean;
  /** Called with the level that the policy is told, and with what the run has seen. */
  readonly onJudge: (autonomy: Autonomy | undefined, exposure: Exposure | undefined) => void;
}

/**
 * `level`: how strict its rules are; undefined: it is code. `isOpen`: whether an effect is outstanding, because a change of
 * the rules judges too.
 */
export function policyOf(
  world: World,
  { later }: ManualScheduler,
  onStart: OnStart,
  { level, isOpen, onJudge }: Judging & { readonly level: number | undefined },
): Policy {
  return {
    ...(level !== undefined && {
      rules: { level },
      withRules: (rules) =>
        hasRules(rules)
          ? policy({}).withRules(rules)
          : policyOf(world, { later } as ManualScheduler, () => {}, {
              ...(rules as { level: number }),
              isOpen,
              onJudge,
            }),
    }),
    judge(calls, { turn, signal, autonomy, exposure }) {
      onJudge(autonomy, exposure);
      if (isOpen(`t${turn}.judge.0`)) onStart('judge-calls', `t${turn}.judge.0`);
      const verdicts = callsOf(replyOf(world, turn))
        .slice(0, calls.length)
        .map(({ verdict, rejudged = verdict }) => (level === 1 ? rejudged : verdict));
      return turn % 2 === 0 ? verdicts : later(verdicts, signal);
    },
  };
}

/** A policy of rules. Every second process has stricter ones. Its limits are not those of the world, so it has none. */
export function rulePolicyOf(
  rules: PolicyRules,
  { clock }: ManualScheduler,
  onStart: OnStart,
  { opening, isOpen, onJudge }: Judging & { readonly opening: number },
): Policy {
  const { limits: _, ...made } = policy(opening % 2 === 0 ? { ...rules, autonomy: 0 } : rules, { clock });
  return {
    ...made,
    judge(calls, context) {
      const id = `t${context.turn}.judge.0`;
      onJudge(context.autonomy, context.exposure);
      if (isOpen(id)) onStart('judge-calls', id);
      return made.judge(calls, context);
    },
  };
}

/** How long a tool that returns at once blocks the event loop. */
export const BLOCKED_MS = 5;

/** Some return at once. `process`: the number of the process that runs them. Some are parked first, and run again when the parked call is answered. */
export function toolsOf(
  { tool, Parked }: Core,
  world: World,
  { later, block }: ManualScheduler,
  onStart: OnStart,
  process: () => number,
): readonly Tool[] {
  const parked = new Set<string>();
  const started = new Map<string, number>();
  const handsOver = !world.rules.agent && world.moves.length % 3 === 0;
  const made = world.tools.map(({ name, description, effect, exclusive, polling, client, verifiable, ...marks }) =>
    tool({
      name,
      description,
      effect,
      exclusive,
      polling,
      resources: (input) => ('a' in (input as object) ? [JSON.stringify(input)] : []),
      ...(!client && name !== 'read' && { remembers: (input: unknown) => memoryKeys(name, input) }),
      ...(marks.needsApproval && { needsApproval: (input: unknown) => !('b' in (input as object)) }),
      ...(marks.unnarrowed && { unnarrowed: true }),
      ...(name === 'read' && { exposes: 'private' as const }),
      ...(verifiable && { touches: (input: unknown) => [{ type: 'write' as const, path: JSON.stringify(input) }] }),
      ...(!client && {
        execute(input: unknown, { key, signal, memory, ask }: ToolContext) {
          const id = effectIn(key);
          const fate = fateOf(world, callIn(id));
          // What asks has not acted before it has all answers.
          onStart('call-tool', id, fate.asks.length > 0 && effect === 'once' ? 'idempotent' : effect);
          started.set(id, process());
          if (fate.asks.length === 0) return act();
          return askAll(fate, ask).then(() => {
            if (signal.aborted) return undefined;
            onStart('call-tool', id, effect);
            return act();
          });

          function act(): unknown {
            const { content, isError, inside } = fate;
            // It changes all that it can.
            for (const [to, value] of Object.entries(memory ? (fate.memory ?? {}) : {})) {
              if (memoryKeys(name, input).includes(to) || to in memory!) memory![to] = value;
            }
            const blocks = world.rules.limits.durationMs !== undefined && fate.verified.type === 'unknown';
            const output = { content, isError, ...(fate.narrow && { narrow: fate.narrow }) };
            if (!fate.parked && !blocks) return later(output, signal);
            if (blocks || (inside.length === 0 && !fate.outside) || parked.has(id)) {
              block(BLOCKED_MS);
              return output;
            }
            parked.add(id);
            const { ttl: ttlMs } = fate;
            return new Parked('elsewhere', waitsIn(fate), ttlMs === undefined ? {} : { ttlMs });
          }
        },
      }),
      ...(verifiable && {
        verify(_: unknown, { key, signal }: ToolContext) {
          // It is told that the run of a parked call was cancelled.
          if (signal.aborted) return { type: 'unknown' as const };
          const id = effectIn(key);
          // In the process that called it, only a timeout leads to a verification.
          const timedOut = started.get(id) === process();
          started.delete(id);
          if (timedOut) onStart('verify-timeout', id, 'idempotent');
          else onStart('verify-tool', id.replace('.tool.', '.verify.'), 'idempotent');
          const { verified } = fateOf(world, callIn(id));
          return later(verified.type === 'result' ? { type: 'done' as const, result: 'done' } : verified, signal);
        },
      }),
    }),
  );
  return made.map((one) => (handsOver && one.name === 'edit' && one.execute ? { ...one, handsTo: 'clerk' } : one));
}

/** Replaces some results, refuses others and fails for the rest; what is empty or an error of the loop stays. */
export function filtersOf({ later }: ManualScheduler): readonly ResultFilter[] {
  return [
    {
      name: 'scan',
      filter({ content: [block], effect, signal }) {
        const text = block && 'text' in block ? block.text : undefined;
        if (text === 'no') throw new Error('no');
        if (block?.type !== 'image' && text !== 'yes' && text !== 'done') return undefined;
        const answer: FilterAnswer =
          text === undefined ? { type: 'refused', reason: 'an image' } : { type: 'changed', content: 'seen' };
        return turnOf(effect) % 2 === 0 ? answer : later(answer, signal);
      },
    },
  ];
}

/** The keys of the memory that a call of a tool uses: of `edit`, those that its input names. */
export function memoryKeys(name: string, input: unknown): readonly string[] {
  if (name !== 'edit') return ['run', 'attempt'];
  return 'a' in (input as object) ? ['run'] : ['attempt'];
}

/** A question that nobody answers in time is answered by its error. */
async function askAll({ asks }: Fate, ask: ToolContext['ask']): Promise<void> {
  for (const questions of asks) await Promise.all(questions.map((question) => ask(question).catch(() => {})));
}

/** The answers to a paused run. */
export function answersTo(world: World, waiting: readonly Waiting[], scheduler: ManualScheduler): readonly Answer[] {
  const given = waiting.map((one) => ({ waiting: one, answer: answerTo(world, one, scheduler) }));
  // One that is given late can make time pass until the deadline of another.
  return given.flatMap(({ waiting: { type, expiresAt = Infinity }, answer }) =>
    answer === undefined || ((type === 'client' || type === 'parked') && scheduler.clock.now() >= expiresAt)
      ? []
      : answer,
  );
}

/** The answer to what a paused run waits for; undefined if there will never be one. */
function answerTo(world: World, waiting: Waiting, { clock, advance }: ManualScheduler): Answer | undefined {
  const { effect } = waiting;
  const { answer, content, isError, forRun } = fateOf(world, callIn(effect.split('/')[0]!));
  if (answer === 'never') return undefined;
  if (waiting.type === 'question') {
    const { expiresAt } = waiting;
    if ((answer === 'late' || answer === 'expired') && expiresAt !== undefined) advance(expiresAt - clock.now());
    return { type: 'answer', effect, value: 'that' };
  }
  if (waiting.type !== 'approval') {
    const expired = clock.now() >= (waiting.expiresAt ?? Infinity);
    if (waiting.type === 'client') return expired ? undefined : { type: 'result', effect, content, isError };
    return expired || effect.includes('/') ? undefined : { type: 'result', effect, content, isError };
  }
  if (answer === 'late' || answer === 'expired') advance(waiting.expiresAt - clock.now());
  const by = nextApprover(waiting);
  const said = {
    approved: answer !== 'refused',
    forRun: forRun[waiting.approvedBy?.length ?? 0] ?? false,
    ...(by !== undefined && { by }),
  };
  return { type: 'approval', effect, digest: waiting.digest, ...said };
}

function callIn(id: string): { readonly turn: number; readonly index: number } {
  return { turn: turnOf(id), index: Number(id.slice(id.lastIndexOf('.') + 1)) };
}

function effectIn(key: string): string {
  return key.slice(key.indexOf('/') + 1);
}
