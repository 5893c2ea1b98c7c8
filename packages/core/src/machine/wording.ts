import type { Rules } from './rules.ts';
import type { Limit } from './state.ts';

/**
 * The sentences that the loop itself writes into a history. A replay must reproduce them, so an edition is never changed:
 * a reworded sentence is a new edition, and `rules.wording` names the edition that a run was started with.
 */
export interface Wording {
  readonly unknownTool: (name: string, available: readonly string[]) => string;
  readonly notAllowed: (name: string, allowed: readonly string[]) => string;
  readonly choiceNone: string;
  readonly choiceOther: (name: string, required: string) => string;
  readonly badCall: (name: string, problem: string) => string;
  readonly denied: (name: string, reason: string | undefined) => string;
  readonly noVerdict: string;
  readonly notApproved: (name: string, reason: string | undefined) => string;
  readonly approvalExpired: (name: string) => string;
  readonly callExpired: (name: string) => string;
  readonly tooManyCalls: (cap: number) => string;
  readonly callsSpent: (limit: number) => string;
  readonly repeated: (name: string, times: number) => string;
  readonly interrupted: (name: string) => string;
  readonly cancelled: string;
  readonly stopped: (limit: Limit) => string;
  readonly callRequired: (tool: string | undefined) => string;
  readonly emptyReply: string;
  readonly confirm: string;
  readonly outputDemand: (schema: string) => string;
  readonly outputInvalid: (problems: readonly string[]) => string;
  readonly outputMissing: (output: string) => string;
  readonly nothingSaid: string;
  readonly submitEarly: (output: string) => string;
  readonly superseded: string;
  readonly accepted: string;
  readonly rejected: (problems: readonly string[], validator: string | undefined) => string;
  readonly tryAgain: (attempt: number, maxAttempts: number) => string;
  readonly summary: (summary: string) => string;
  readonly summarise: string;
  readonly closing: (limit: Limit) => string;
}

const edition1: Wording = {
  unknownTool: (name, available) =>
    `There is no tool "${name}". Available tools: ${available.join(', ') || 'none'}. Use one of them, or answer without.`,
  notAllowed: (name, allowed) =>
    `The tool "${name}" is not allowed here. Allowed tools: ${allowed.join(', ') || 'none'}. Use one of them, or answer without.`,
  choiceNone: 'Tools may not be called now. Answer with what you have.',
  choiceOther: (name, required) =>
    `The tool "${name}" was not called, because this turn demands "${required}". Call that.`,
  badCall: (name, problem) => `The tool "${name}" was not called. ${problem}`,
  denied: (name, reason) => `The call of "${name}" was denied${reason ? `: ${reason}` : '.'}`,
  noVerdict: 'the policy gave no verdict on it.',
  notApproved: (name, reason) => `The call of "${name}" was not approved${reason ? `: ${reason}` : '.'}`,
  approvalExpired: (name) => `The call of "${name}" was not approved in time, so it was not executed.`,
  callExpired: (name) =>
    `The call of "${name}" had no result in time, and it is not known whether it took effect. Find out before you call it again.`,
  tooManyCalls: (cap) =>
    `Not executed: at most ${cap} calls are taken from one reply. Call it again if it is still needed.`,
  callsSpent: (limit) => `Not executed: all ${limit} tool calls of this run are used up. Answer with what you have.`,
  repeated: (name, times) =>
    `Not executed: "${name}" was called ${times} times in a row with the same arguments and gave the same result. ` +
    'Do something else, or answer with what you have.',
  interrupted: (name) =>
    `The call of "${name}" was interrupted, and it is not known whether it took effect. Find out before you call it again.`,
  cancelled: 'Not finished: the run was cancelled.',
  stopped: (limit) => `Not finished: the run met its limit of ${LIMIT_WORDS[limit]}.`,
  callRequired: (tool) =>
    tool === undefined
      ? 'A tool call is required here, and your reply had none. Call one of the tools.'
      : `A call of the tool "${tool}" is required here, and your reply had none. Call it.`,
  emptyReply: 'Your reply was empty. Go on with the task, or give your answer.',
  confirm:
    'Before this counts as your answer, check it: are all parts of the task done, and have you verified the results? ' +
    'If something is left, go on with it now. If everything is done, state your final answer once more, in full.',
  outputDemand: (schema) => `Give your final answer as nothing but JSON that matches this JSON Schema: ${schema}`,
  outputInvalid: (problems) =>
    `Your answer does not have the form that is demanded: ${problems.join('; ')}. ` +
    'Answer again with nothing but JSON that matches the schema.',
  outputMissing: (output) =>
    `Your reply called no tool. Work with the tools, and give your answer by calling "${output}".`,
  nothingSaid: '(The reply was empty.)',
  submitEarly: (output) => `There is nothing to submit yet. Call "${output}" with your output first.`,
  superseded: 'Not used: a later call in the same reply takes its place.',
  accepted: 'Accepted.',
  rejected: (problems, validator) =>
    `Rejected${validator === undefined ? ', because it does not match its schema' : ` by "${validator}"`}: ${problems.join('; ')}`,
  tryAgain: (attempt, maxAttempts) =>
    `Your output was not accepted. Mend what is wrong and give it again. This is attempt ${attempt} of ${maxAttempts}.`,
  summary: (summary) => `What happened so far, in short; the messages themselves are left out:\n\n${summary}`,
  summarise:
    'This conversation has become too long. Summarise it for yourself, so that you can go on with the task from the ' +
    'summary alone: what was asked, what was done and found out (with names, numbers and paths as they are), what was ' +
    'decided, and what is left to do. Do not call tools, and answer with nothing but the summary.',
  closing: (limit) =>
    `This run has met its limit of ${LIMIT_WORDS[limit]}, so no more tools can be called. ` +
    'Give your final answer now with what you have, and say what is left undone.',
};

const LIMIT_WORDS: Record<Limit, string> = {
  turns: 'turns',
  attempts: 'attempts',
  calls: 'tool calls',
  tokens: 'tokens',
  cost: 'cost',
  duration: 'time',
  errors: 'errors in a row',
  repetition: 'repeated calls',
  budget: 'spending',
};

const edition2: Wording = {
  ...edition1,
  unknownTool: (name, available) =>
    `There is no tool "${name}". Available tools: ${available.join(', ') || 'none'}. Use one of them, or answer without a tool.`,
  notAllowed: (name, allowed) =>
    `The tool "${name}" is not allowed here. Allowed tools: ${allowed.join(', ') || 'none'}. Use one of them, or answer without a tool.`,
  choiceOther: (name, required) =>
    `The tool "${name}" was not called, because this turn requires a call of "${required}". Call that tool.`,
  noVerdict: 'the policy returned no verdict for it.',
  repeated: (name, times) =>
    `Not executed: "${name}" was called ${times} times in a row with the same arguments and returned the same result. ` +
    'Do something else, or answer with what you have.',
  stopped: (limit) => `Not finished: the run reached its limit of ${LIMIT_WORDS[limit]}.`,
  emptyReply: 'Your reply was empty. Continue with the task, or give your answer.',
  confirm:
    'Before this is accepted as your answer, check it: are all parts of the task done, and have you verified the ' +
    'results? If something is left, continue with it now. If everything is done, state your final answer once more, in full.',
  outputInvalid: (problems) =>
    `Your answer does not match the required schema: ${problems.join('; ')}. ` +
    'Answer again with nothing but JSON that matches the schema.',
  superseded: 'Not used: a later call in the same reply replaces it.',
  tryAgain: (attempt, maxAttempts) =>
    `Your output was not accepted. Correct it and submit it again. This is attempt ${attempt} of ${maxAttempts}.`,
  summary: (summary) => `Summary of the conversation so far; the original messages are left out:\n\n${summary}`,
  summarise:
    'This conversation is too long. Summarise it for yourself, so that you can continue the task from the summary alone: ' +
    'what was asked, what was done and found out (with exact names, numbers and paths), what was decided, and what is ' +
    'left to do. Do not call tools, and answer with nothing but the summary.',
  closing: (limit) =>
    `This run has reached its limit of ${LIMIT_WORDS[limit]}, so no more tools can be called. ` +
    'Give your final answer now with what you have, and say what is left undone.',
};

/** For a typed agent, whose answer is a call: no sentence may ask for a text answer. */
const agentWording: Partial<Wording> = {
  unknownTool: (name, available) =>
    `There is no tool "${name}". Available tools: ${available.join(', ') || 'none'}. Use one of them.`,
  notAllowed: (name, allowed) =>
    `The tool "${name}" is not allowed here. Allowed tools: ${allowed.join(', ') || 'none'}. Use one of them.`,
  callsSpent: (limit) =>
    `Not executed: all ${limit} tool calls of this run are used up. Give your output with what you have.`,
};

const EDITIONS: Record<Rules['wording'], { readonly plain: Wording; readonly agent: Wording }> = {
  1: { plain: edition1, agent: { ...edition1, ...agentWording } },
  2: { plain: edition2, agent: { ...edition2, ...agentWording } },
};

/** The edition of new runs. */
export const CURRENT_WORDING: Rules['wording'] = 2;

export function wordingOf({ wording, agent }: Rules): Wording {
  const { plain, agent: forAgent } = EDITIONS[wording];
  return agent ? forAgent : plain;
}

/** False for an edition of a later version. */
export function hasWording({ wording }: Rules): boolean {
  return typeof wording === 'number' && EDITIONS[wording] !== undefined;
}
