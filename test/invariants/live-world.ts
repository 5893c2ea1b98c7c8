import type {
  Answer,
  LoopOptions,
  Model,
  ModelReply,
  Policy,
  PrepareTurn,
  StandardSchema,
  Tool,
  ToolContext,
  Waiting,
} from '@treadle/core';
import { asideOf, fateOf, firstReplyOf, outputVerdict, replyOf, spoken, SUMMARY, turnOf, waitsIn } from './answers.ts';
import type { AgentCode, Core } from './core.ts';
import type { Stage } from './stage.ts';
import { callsOf, type World } from './world.ts';

/** Called when something begins, with the id of its effect; `once`: of a tool that must not act twice. */
export type Begin = (type: Performed, id: string, once?: boolean) => void;

/** Kinds of effects that somebody performs. */
export type Performed =
  | 'call-model'
  | 'prepare-turn'
  | 'compact-history'
  | 'validate-output'
  | 'judge-calls'
  | 'call-tool'
  | 'verify-tool';

/** The rules of a world as options. What `runLoop` would refuse is left out. */
export function optionsOf({ rules, tools, input }: World): Omit<LoopOptions, 'model'> {
  const {
    wording: _,
    judged: __,
    prepared: ___,
    output: ____,
    allowedTools: given,
    toolChoice: choice,
    agent: _____,
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
    input,
    toolChoice,
    ...(allowed.length > 0 && { allowedTools: allowed }),
  };
}

/** Where an answer has to be JSON, every word is. */
export function modelOf(world: World, { later }: Stage, begin: Begin, name: string): Model {
  return {
    id: name,
    priced: true,
    reply({ key }, _, signal) {
      const id = effectIn(key);
      begin('call-model', id);
      const { type, effect: __, at: ___, ...reply } = spoken(firstReplyOf(world, id), id, 0) as Spoken;
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

export function summariserOf(world: World, { later }: Stage, begin: Begin): Model {
  return {
    id: 'summariser',
    priced: true,
    reply({ key }, _, signal) {
      const id = effectIn(key);
      begin('compact-history', id);
      const { summary } = asideOf(world, turnOf(id));
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

/** Decides only for what there is. */
export function prepareTurnOf(world: World, { later }: Stage, begin: Begin): PrepareTurn {
  const names = world.tools.map(({ name }) => name);
  return ({ turn }) => {
    begin('prepare-turn', `t${turn}.prepare.0`);
    const { decision, unprepared } = asideOf(world, turn);
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

/** `latest`: the newest effect of its kind that was issued. */
export function outputOf(world: World, { later }: Stage, begin: Begin, latest: () => string): StandardSchema {
  return {
    '~standard': {
      version: 1,
      vendor: 'world',
      jsonSchema: { input: () => ({ type: 'string' }) },
      validate(value) {
        const id = latest();
        begin('validate-output', id);
        const { valid } = asideOf(world, turnOf(id));
        const verdict = valid ? { value } : { issues: [{ message: 'it is wrong' }] };
        return turnOf(id) % 2 === 0 ? verdict : later(verdict);
      },
    },
  };
}

/** Of a typed agent. `latest`: the newest effect of its kind that was issued. */
export function agentOf(world: World, { later }: Stage, begin: Begin, latest: () => string): AgentCode | undefined {
  const { agent: rules } = world.rules;
  return (
    rules && {
      rules,
      check(_, __, signal) {
        const id = latest();
        begin('validate-output', id);
        const verdict = outputVerdict(asideOf(world, turnOf(id)));
        return turnOf(id) % 2 === 0 ? Promise.resolve(verdict) : later(verdict, signal);
      },
    }
  );
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

/** Some of their results come at once; some go on elsewhere first, and are taken up when that is answered. */
export function toolsOf({ tool, Parked }: Core, world: World, { later }: Stage, begin: Begin): readonly Tool[] {
  const parked = new Set<string>();
  return world.tools.map(({ name, description, effect, exclusive, polling, client, verifiable }) =>
    tool({
      name,
      description,
      effect,
      exclusive,
      polling,
      resources: (input) => ('a' in (input as object) ? [JSON.stringify(input)] : []),
      ...(!client && {
        execute(_: unknown, { key, signal, memory }: ToolContext) {
          const id = effectIn(key);
          begin('call-tool', id, effect === 'once');
          const fate = fateOf(world, callIn(id));
          const { content, isError, inside } = fate;
          if (memory) Object.assign(memory, fate.memory);
          if (!fate.parked) return later({ content, isError }, signal);
          if (inside.length === 0 || parked.has(id)) return { content, isError };
          parked.add(id);
          return new Parked('elsewhere', waitsIn(fate));
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
  const { effect } = waiting;
  const { answer, content, isError } = fateOf(world, callIn(effect.split('/')[0]!));
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
