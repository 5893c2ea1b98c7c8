import { messageOf } from '../errors.ts';
import type { Event, GuardrailVerdict } from '../machine/events.ts';
import type { CheckedOutput } from '../machine/finish/finish.ts';
import { estimateTokens, messagesOf } from '../machine/history.ts';
import type { TurnDecision } from '../machine/rules.ts';
import { wordingOf } from '../machine/wording.ts';
import { textOf, userText, type Message, type TextBlock } from '../messages.ts';
import type { ModelReply, ModelRequest } from '../model.ts';
import { settledWithin } from '../tools/execute.ts';
import { truncateContent } from '../tools/result.ts';
import { validate, type Validated } from '../tools/schema.ts';
import { ignore, modelFor, requestReply } from './call-model.ts';
import { isToolChoice } from './open.ts';
import { outputFrom } from './output-text.ts';
import type { GuardedContent, Guardrail, GuardrailAnswer, TurnChanges } from './options.ts';
import type { EffectOf, RunContext, Settle } from './perform.ts';

/* What few runs do before the first turn, between two turns and after the last one. Loaded with the first of it. */

export function performBetweenTurns(
  context: RunContext,
  effect: EffectOf<'prepare-turn' | 'compact-history' | 'check-guardrails' | 'validate-output'>,
  settle: Settle,
): void {
  switch (effect.type) {
    case 'prepare-turn':
      return prepareTurn(context, effect, settle);
    case 'compact-history':
      return summariseHistory(context, effect, settle);
    case 'check-guardrails':
      return void checkGuardrails(context, effect, settle);
    case 'validate-output':
      return validateOutput(context, effect, settle);
    default:
      effect satisfies never;
  }
}

/* Guardrails */

/** Calls all guardrails of a stage. One that fails stops the run. */
async function checkGuardrails(
  context: RunContext,
  { id, stage, history, output }: EffectOf<'check-guardrails'>,
  settle: Settle,
): Promise<void> {
  const { runId, options, opening, controller, clock } = context;
  const { signal } = controller;
  const messages = messagesOf(history);
  const content: GuardedContent = {
    runId,
    messages,
    text: textOf((messages.at(-1)?.content ?? []) as readonly TextBlock[]),
    ...(output !== undefined && { output }),
    context: options.context,
    principal: opening.principal,
    signal,
  };
  const guardrails = options.guardrails?.[stage] ?? [];
  const verdicts = await Promise.all(guardrails.map((check) => guardrailVerdict(check, content)));
  if (!signal.aborted) settle({ type: 'guardrails-checked', at: clock.now(), effect: id, verdicts });
}

async function guardrailVerdict(check: Guardrail, content: GuardedContent): Promise<GuardrailVerdict> {
  const failed = (why: string): GuardrailVerdict => ({ type: 'stop', reason: `A guardrail ${why}` });
  try {
    const answer = (await check(content)) as GuardrailAnswer | { readonly type?: unknown } | undefined;
    if (answer === true) return { type: 'pass' };
    if (typeof answer === 'string') return { type: 'stop', reason: answer };
    const verdict = answer === false ? { type: 'stop' } : answer;
    if (verdict?.type === 'pass') return { type: 'pass' };
    if (verdict?.type !== 'stop') return failed('returned no verdict.');
    return { type: 'stop', reason: 'reason' in verdict ? String(verdict.reason) : 'A guardrail stopped the run.' };
  } catch (thrown) {
    return failed(`failed: ${messageOf(thrown)}`);
  }
}

/** Calls `prepareTurn`. If it throws, or chooses something that does not exist, the run fails. */
function prepareTurn(context: RunContext, { id, turn, history }: EffectOf<'prepare-turn'>, settle: Settle): void {
  const { runId, options, clock, state } = context;
  const { usage, calls } = state();
  const info = { runId, turn, messages: history.items, usage, calls, context: options.context };
  void (async () => {
    if (!options.prepareTurn) throw new Error('the run was started with one, and was resumed without');
    return options.prepareTurn(info);
  })()
    .then((changes) => {
      const decision = turnDecision(context, changes);
      settle({ type: 'turn-prepared', at: clock.now(), effect: id, decision });
    })
    .catch((thrown: unknown) => {
      const problem = `prepareTurn failed: ${messageOf(thrown)}`;
      settle({ type: 'turn-prepared', at: clock.now(), effect: id, decision: {}, problem });
    });
}

function turnDecision({ options, state }: RunContext, changes: TurnChanges): TurnDecision {
  const { model, tools, toolChoice, instructions } = changes ?? {};
  const models = (options.models ?? []).map((other) => other.id);
  if (model !== undefined && !models.includes(model)) {
    throw new Error(`it chose the model "${model}", which is not in "models" (${models.join(', ') || 'none'})`);
  }
  if (toolChoice !== undefined && !isToolChoice(toolChoice)) {
    throw new Error(`${JSON.stringify(toolChoice)} is not a toolChoice`);
  }
  if (tools !== undefined && !Array.isArray(tools)) throw new Error('its tools are not an array of names');
  const known = new Set(state().tools.map(({ name }) => name));
  const required = typeof toolChoice === 'object' ? [toolChoice.tool] : [];
  for (const name of [...(tools ?? []), ...required]) {
    if (!known.has(name)) throw new Error(`there is no tool "${name}"`);
  }
  return {
    ...(model !== undefined && { model }),
    ...(tools && { tools: [...tools] }),
    ...(toolChoice !== undefined && { toolChoice }),
    ...(instructions !== undefined && { instructions }),
  };
}

/* Compaction */

/** Has a model summarise the oldest turns. Listeners receive nothing of it, and its calls are not run. */
function summariseHistory(context: RunContext, effect: EffectOf<'compact-history'>, settle: Settle): void {
  const { id, history, from, to } = effect;
  const { runId, options, opening, clock, state, controller } = context;
  const { instructions, tools } = state();
  const request: ModelRequest = {
    parallel: opening.rules.parallel,
    settings: {},
    ...(instructions !== undefined && { instructions }),
    messages: [...history.items.slice(0, to), userText(wordingOf(opening.rules).summarise)],
    tools,
    toolChoice: 'none',
    key: `${runId}/${id}`,
  };
  requestReply(options.summariser ?? modelFor(context, undefined)!, request, ignore, controller.signal, (reply) => {
    const result = summaryFrom(reply, history.items.slice(from, to));
    settle({ type: 'history-compacted', at: clock.now(), effect: id, result });
  });
}

type Compacted = Extract<Event, { type: 'history-compacted' }>['result'];

function summaryFrom(reply: ModelReply, replaced: readonly Message[]): Compacted {
  if (reply.type === 'failure') return { type: 'failure', error: reply.error };
  const summary = textOf(reply.content).trim();
  if (summary === '') return uselessSummary('The summary was empty.');
  const tokens = replaced.reduce((sum, message) => sum + estimateTokens(message), 0);
  if (estimateTokens(userText(summary)) > Math.max(tokens, SHORT_SUMMARY_TOKENS)) {
    return uselessSummary('The summary was longer than the messages it replaces.');
  }
  return { type: 'summary', summary, model: reply.model, usage: reply.usage };
}

/** A summary of this size is accepted even if it is longer than the messages it replaces. */
const SHORT_SUMMARY_TOKENS = 200;

function uselessSummary(message: string): Compacted {
  return { type: 'failure', error: { code: 'protocol', message, retryable: false } };
}

/* Output */

/** Validates the answer against its schema, or has the typed agent check it. */
function validateOutput(context: RunContext, { id, text, attempt }: EffectOf<'validate-output'>, settle: Settle): void {
  const { options, opening, agent, clock, controller } = context;
  const { rules } = opening;
  const { signal } = controller;
  const settleOutput = (result: CheckedOutput): void => {
    if (signal.aborted) return;
    const fit = fittedProblems(result, rules.maxResultChars);
    settle({ type: 'output-checked', at: clock.now(), effect: id, result: fit });
  };
  const { toolTimeoutMs } = rules;
  /** Validators are code, which may never settle its promise. */
  const settleLater = (verdict: Promise<CheckedOutput>, expired?: AbortController): void => {
    const late = (): CheckedOutput => {
      expired?.abort();
      return { type: 'invalid', problems: [`its check timed out after ${toolTimeoutMs} ms`] };
    };
    void settledWithin(verdict, toolTimeoutMs, clock, late).then(settleOutput);
  };
  // A run of a typed agent is resumed only with the code of its agent.
  if (attempt !== undefined) {
    const expired = new AbortController();
    const either = AbortSignal.any([signal, expired.signal]);
    return settleLater(agent!.check({ text, attempt, rules: rules.agent!, signal: either }), expired);
  }
  const { outputText } = rules;
  const parsed: Validated =
    outputText === undefined
      ? parseOutput(text, rules.outputCheck === undefined)
      : { type: 'valid', value: outputFrom(text, outputText) };
  if (parsed.type === 'invalid') return settleOutput(parsed);
  const verdict = validate(options.output ?? rules.output!, parsed.value, options.matchPattern);
  if (verdict instanceof Promise) settleLater(verdict);
  else settleOutput(verdict);
}

/** Problems are sent to the model as a result, so they are cut to the size of one. */
function fittedProblems(result: CheckedOutput, maxChars: number): CheckedOutput {
  if (result.type === 'valid') return result;
  const fit = (problem: string): string => textOf(truncateContent([{ type: 'text', text: problem }], maxChars));
  return { ...result, problems: result.problems.map(fit) };
}

/** `mayBeFenced`: JSON inside a code fence is accepted, because many models add one. */
function parseOutput(text: string, mayBeFenced: boolean): Validated {
  const fenced = mayBeFenced && /^\s*```[a-z]*\s*([\s\S]*?)\s*```\s*$/i.exec(text);
  try {
    return { type: 'valid', value: JSON.parse(fenced ? fenced[1]! : text) };
  } catch (error) {
    return { type: 'invalid', problems: [`it is not JSON (${(error as Error).message.slice(0, 200)})`] };
  }
}
