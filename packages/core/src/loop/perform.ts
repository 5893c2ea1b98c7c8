import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { ReasoningPart, TextBlock, ToolCall } from '../messages.ts';
import type { Model, ModelDelta, ModelReply, ModelRequest } from '../model.ts';
import type { JudgedCall, Policy, Verdict } from '../policy/port.ts';
import { checkCall, type Checked } from '../tools/check.ts';
import { execute, verify, type Execution, type Running } from '../tools/execute.ts';
import { errorResult, fitted } from '../tools/result.ts';
import type { Tool } from '../tools/tool.ts';
import { partOf } from './items.ts';
import { toolEffectId } from './outstanding.ts';
import type { Item } from './options.ts';
import type { Call, Effect, Event, SettledResult } from './types.ts';

/**
 * Begins an effect and calls `done` once with the event that settles it, at once or later, unless it is aborted. What
 * waits for somebody outside is not begun at all.
 */
export type Perform = (effect: Effect, done: (event: Event) => void) => void;

export interface Performer {
  readonly perform: Perform;
  /** Tells everything under way to stop. */
  readonly abort: () => void;
}

export interface PerformerOptions {
  readonly started: Extract<Event, { type: 'run-started' }>;
  readonly model: Model;
  readonly tools: ReadonlyMap<string, Tool>;
  readonly policy: Policy | undefined;
  readonly context: unknown;
  readonly clock: Clock;
  /** Absent when nobody listens. */
  readonly emit: ((item: Item) => void) | undefined;
}

export function performer({ started, model, tools, policy, context, clock, emit }: PerformerOptions): Performer {
  const { runId, rules, instructions, settings, principal } = started;
  const pinned = {
    ...(instructions !== undefined && { instructions }),
    ...(rules.allowedTools && { allowedTools: rules.allowedTools }),
    parallel: rules.parallel,
    settings,
  };
  const controller = new AbortController();
  const running = new Set<() => void>();
  /** Validated inputs of the calls of the last reply. After a crash they are made again. */
  let inputs: { readonly turn: number; readonly checked: readonly Checked[] } = { turn: 0, checked: [] };

  function callModel(effect: Of<'call-model'>, done: (event: Event) => void): void {
    const { history, tools: offered, toolChoice } = effect;
    const request: ModelRequest = {
      ...pinned,
      messages: history.items,
      tools: offered,
      toolChoice,
      key: `${runId}/${effect.id}`,
    };
    let over = false;
    const tell = emit && ((delta: ModelDelta): void => (over ? undefined : emit(delta)));
    const failed = (failure: Failure): void => {
      over = true;
      const { error, attempts } = failure;
      done({ type: 'model-failed', at: clock.now(), effect: effect.id, error, ...(attempts && { attempts }) });
    };
    const settle = (reply: ModelReply): void => {
      over = true;
      if (!isReply(reply)) failed(broken(model, `it replied with ${messageOf(reply)}`));
      else if (reply.type === 'failure') failed(reply);
      else replied(effect.id, reply, done);
    };
    const threw = (thrown: unknown): void => failed(broken(model, `it threw: ${messageOf(thrown)}`));
    try {
      model.reply(request, tell ?? ignore, controller.signal).then(settle, threw);
    } catch (thrown) {
      threw(thrown);
    }
  }

  function replied(id: string, reply: Extract<ModelReply, { type: 'reply' }>, done: (event: Event) => void): void {
    const turn = Number(id.slice(1, id.indexOf('.')));
    const cut = reply.finish === 'length';
    const checked: (Checked | Promise<Checked>)[] = [];
    let later = false;
    for (const part of reply.content) {
      if (part.type !== 'tool-call') continue;
      const tool = tools.get(part.name);
      const check = tool ? checkCall(tool, part.arguments, cut) : UNCHECKED;
      later ||= check instanceof Promise;
      checked.push(check);
    }
    const settle = (all: readonly Checked[]): void => {
      inputs = { turn, checked: all };
      const checks = all.map(({ check }) => check);
      const { content, finish, rawFinish, usage, model, attempts } = reply;
      const extras = { ...(rawFinish !== undefined && { rawFinish }), ...(attempts && { attempts }) };
      done({ type: 'model-replied', at: clock.now(), effect: id, content, finish, usage, model, checks, ...extras });
    };
    if (later) void Promise.all(checked).then(settle);
    else settle(checked as readonly Checked[]);
  }

  function judge({ id, calls }: Of<'judge-calls'>, done: (event: Event) => void): void {
    const settle = (verdicts: readonly Verdict[]): void =>
      done({ type: 'calls-judged', at: clock.now(), effect: id, verdicts });
    const failed = (thrown: unknown): void => {
      const reason = `the policy failed: ${messageOf(thrown)}`;
      settle(calls.map(() => ({ type: 'deny', reason })));
    };
    const about = { runId, turn: calls[0]!.turn, ...(principal && { principal }), context, signal: controller.signal };
    const ask = (judged: readonly JudgedCall[]): unknown => policy!.judge(judged, about);
    try {
      if (!policy) throw new Error('the run was started with a policy, and there is none now');
      const judged = calls.map((call) => withInput(call, (input) => judgedCall(call, input)));
      const verdicts = judged.some((call) => call instanceof Promise)
        ? Promise.all(judged).then(ask)
        : ask(judged as readonly JudgedCall[]);
      if (typeof (verdicts as Partial<PromiseLike<unknown>>)?.then !== 'function')
        settle(verdicts as readonly Verdict[]);
      else
        Promise.resolve(verdicts as PromiseLike<readonly Verdict[]>)
          .then(settle)
          .catch(failed);
    } catch (thrown) {
      failed(thrown);
    }
  }

  function runTool(effect: Of<'call-tool' | 'verify-tool'>, done: (event: Event) => void): void {
    const { call, id } = effect;
    const settle = (result: SettledResult): void =>
      done({ type: 'tool-settled', at: clock.now(), effect: id, result: fitted(result, rules.maxResultChars) });
    const unable = (why: string): void =>
      settle(effect.type === 'verify-tool' ? { type: 'unknown' } : errorResult(why));
    const tool = tools.get(call.name);
    if (!tool?.execute) return unable(`The tool "${call.name}" is not available in this process.`);

    const begin = (input: unknown): void => {
      if (controller.signal.aborted) return;
      const execution: Execution = {
        tool,
        input,
        key: `${runId}/${toolEffectId(call)}`,
        timeoutMs: tool.timeoutMs ?? rules.toolTimeoutMs,
        clock,
        report: (progress) => emit?.({ type: 'tool-report', call: partOf(call), progress }),
        context,
        principal,
      };
      const { result, abort }: Running = effect.type === 'verify-tool' ? verify(execution) : execute(execution);
      if (!(result instanceof Promise)) return settle(result);
      if (controller.signal.aborted) abort();
      running.add(abort);
      void result.then((settled) => {
        running.delete(abort);
        settle(settled);
      });
    };
    void withInput(call, (input, problem) => {
      if (problem === undefined) begin(input);
      else unable(`The tool "${call.name}" was not called. ${problem}`);
    });
  }

  function withInput<T>(call: Call, use: (input: unknown, problem?: string) => T): T | Promise<T> {
    if (inputs.turn === call.turn) return use(inputs.checked[call.index]!.input);
    const tool = tools.get(call.name);
    if (!tool) return use(undefined, ABSENT);
    const checked = checkCall(tool, call.arguments, false);
    const read = ({ check, input }: Checked): T => use(input, check.problem);
    return checked instanceof Promise ? checked.then(read) : read(checked);
  }

  return {
    perform(effect, done) {
      switch (effect.type) {
        case 'call-model':
          return callModel(effect, done);
        case 'judge-calls':
          return judge(effect, done);
        case 'call-tool':
        case 'verify-tool':
          return runTool(effect, done);
        case 'ask-approval':
        case 'await-client':
          return;
        default:
          effect satisfies never;
      }
    },
    abort() {
      controller.abort();
      for (const abort of running) abort();
    },
  };
}

type Of<Type extends Effect['type']> = Extract<Effect, { type: Type }>;

const ABSENT = 'It is not available in this process.';
const UNCHECKED: Checked = { check: { problem: ABSENT } };

function ignore(): void {}

function judgedCall({ id, name, effect }: Call, input: unknown): JudgedCall {
  return { id, name, input, effect };
}

type Failure = Extract<ModelReply, { type: 'failure' }>;

/** Models promise to reply and never to reject; one that does otherwise is a failure like any other. */
function broken(model: Model, what: string): Failure {
  const message = `The model "${model.id}" broke its contract: ${what.slice(0, 500)}`;
  return { type: 'failure', error: { code: 'protocol', message, retryable: false } };
}

function isReply(
  reply: Partial<Extract<ModelReply, { type: 'reply' }>> | Partial<Failure> | undefined | null,
): boolean {
  if (reply?.type === 'failure') return typeof reply.error?.message === 'string';
  if (reply?.type !== 'reply' || !Array.isArray(reply.content)) return false;
  if (!Number.isFinite(reply.usage?.inputTokens) || !Number.isFinite(reply.usage?.outputTokens)) return false;
  return reply.content.every(isPart);
}

function isPart(part: Partial<ToolCall> | Partial<TextBlock | ReasoningPart> | undefined | null): boolean {
  if (part?.type === 'text' || part?.type === 'reasoning') return typeof part.text === 'string';
  return part?.type === 'tool-call' && [part.id, part.name, part.arguments].every((field) => typeof field === 'string');
}
