import type { Answer, LoopOptions, Model, ModelReply, Policy, Tool, ToolContext, Waiting } from '@treadle/core';
import { fateOf, replyOf, spoken, turnOf } from './answers.ts';
import type { Core } from './core.ts';
import type { Stage } from './stage.ts';
import { callsOf, type World } from './world.ts';

/** Called when something begins, with the id of its effect; `once`: of a tool that must not act twice. */
export type Begin = (
  type: 'call-model' | 'judge-calls' | 'call-tool' | 'verify-tool',
  id: string,
  once?: boolean,
) => void;

/** The rules of a world as options. What `runLoop` would refuse is left out. */
export function optionsOf({ rules, tools, input }: World): Omit<LoopOptions, 'model'> {
  const { maxCallsPerTurn, toolChoice: choice, wording: _, judged: __, allowedTools: ___, ...plain } = rules;
  const names = tools.map(({ name }) => name);
  const allowed = rules.allowedTools?.filter((name) => names.includes(name)) ?? [];
  const possible = allowed.length > 0 ? allowed : names;
  const toolChoice = typeof choice === 'object' && !possible.includes(choice.tool) ? 'auto' : choice;
  return {
    ...plain,
    input,
    toolChoice,
    ...(maxCallsPerTurn !== undefined && { maxCallsPerTurn }),
    ...(allowed.length > 0 && { allowedTools: allowed }),
  };
}

export function modelOf(world: World, { later }: Stage, begin: Begin): Model {
  return {
    id: 'live',
    reply({ key }, _, signal) {
      const id = effectIn(key);
      begin('call-model', id);
      const { type, effect: __, at: ___, ...reply } = spoken(replyOf(world, turnOf(id), false), id, 0) as Spoken;
      return later({ ...reply, type: type === 'model-failed' ? 'failure' : 'reply' } as ModelReply, signal);
    },
  };
}

type Spoken = Extract<ReturnType<typeof spoken>, { effect: string }>;

export function policyOf(world: World, { later }: Stage, begin: Begin): Policy {
  return {
    judge(calls, { turn, signal }) {
      begin('judge-calls', `t${turn}.judge.0`);
      const verdicts = callsOf(replyOf(world, turn))
        .slice(0, calls.length)
        .map(({ verdict }) => verdict);
      return turn % 2 === 0 ? verdicts : later(verdicts, signal);
    },
  };
}

/** Some of their results come at once. */
export function toolsOf({ tool }: Core, world: World, { later }: Stage, begin: Begin): readonly Tool[] {
  return world.tools.map(({ name, description, effect, exclusive, polling, client, verifiable }) =>
    tool({
      name,
      description,
      effect,
      exclusive,
      polling,
      resources: (input) => ('a' in (input as object) ? [JSON.stringify(input)] : []),
      ...(!client && {
        execute(_: unknown, { key, signal }: ToolContext) {
          const id = effectIn(key);
          begin('call-tool', id, effect === 'once');
          const { content, isError, parked } = fateOf(world, callIn(id));
          return parked ? { content, isError } : later({ content, isError }, signal);
        },
      }),
      ...(verifiable && {
        verify(_: unknown, { key, signal }: ToolContext) {
          const id = effectIn(key);
          begin('verify-tool', id.replace('.tool.', '.verify.'));
          const { verified } = fateOf(world, callIn(id));
          return later(verified.type === 'result' ? { type: 'done' as const, result: 'done' } : verified, signal);
        },
      }),
    }),
  );
}

/** What somebody says to a paused run; undefined if it will never be said. */
export function answerTo(world: World, waiting: Waiting, { clock, advance }: Stage): Answer | undefined {
  const { effect, call } = waiting;
  const { answer, content, isError } = fateOf(world, call);
  if (answer === 'never' || waiting.type === 'parked') return undefined;
  if (waiting.type === 'client') return { type: 'client-result', effect, content, isError };
  if (answer === 'late' || answer === 'expired') advance(waiting.expiresAt - clock.now());
  return { type: 'approval', effect, digest: waiting.digest, approved: answer !== 'refused' };
}

function callIn(id: string): { readonly turn: number; readonly index: number } {
  return { turn: turnOf(id), index: Number(id.slice(id.lastIndexOf('.') + 1)) };
}

function effectIn(key: string): string {
  return key.slice(key.indexOf('/') + 1);
}
