import type { slotFor } from '../machine/effects.ts';
import type { AskedQuestion, Question } from '../machine/questions.ts';
import type { Execution, RunningCall } from '../tools/execute.ts';
import type { QuestionOptions } from '../tools/tool.ts';
import type { AskingTool, RunContext } from './perform.ts';

/*
 * Questions of running tools. This is loaded when a tool asks for the first time. It imports only types, and gets the
 * functions that it needs: a bundler would move what it shares with the core into files of their own.
 *
 * A question that has an answer in the journal is answered at once. Any other is recorded, and the call then waits. If the
 * answer comes while this process drives the run, the tool continues. If the run pauses before, the tool is aborted, and is
 * called again, from its start, when all of its questions have answers.
 */

/** A question without an answer. */
interface Unanswered extends PromiseWithResolvers<unknown> {
  readonly key: string;
  readonly question: Question;
  readonly ttlMs: number | undefined;
}

/** A run, and how to find the slot of a call. */
export interface AskingRun {
  readonly context: RunContext;
  readonly slotFor: typeof slotFor;
}

interface QuestioningTool extends AskingTool {
  /** Questions without an id so far. */
  unnamed: number;
  readonly unanswered: Map<string, Unanswered>;
  /** Questions that one event will record. */
  unrecorded: Unanswered[];
  readonly timers: Set<() => void>;
}

/** Puts a question of a running tool to those who answer the run. Rejects if nobody answers in time. */
export async function askPeople(
  run: AskingRun,
  { execution, signal }: RunningCall,
  given: string | QuestionOptions,
): Promise<unknown> {
  const { context } = run;
  const effect = execution.key.slice(context.runId.length + 1);
  const { question, id, ttlMs } = checkedQuestion(execution, given);
  const slot = run.slotFor(context.state(), effect);
  if (signal.aborted || (slot?.type !== 'running' && slot?.type !== 'questioning')) {
    throw new Error(`The call of "${execution.tool.name}" has ended, so it cannot ask. Await each answer.`);
  }
  const tool = questioningTool(run, execution, effect);
  const key = id ?? `#${tool.unnamed++}`;
  // Before what is recorded: the answer may not be durable yet.
  const open = tool.unanswered.get(key);
  if (open && isSame(open.question, question)) return open.promise;
  const recorded = recordedQuestion(run, effect, key, question);
  if (recorded && (recorded.answer ?? recorded.expired)) return answerIn(recorded);
  if (context.options.canAnswer === false) {
    const refusal = new Error('Nobody can answer questions in this run.');
    throw Object.assign(refusal, { code: 'nobody-answers', errorType: 'denied' });
  }
  if (open)
    throw new Error(`The id "${key}" has another question, which is still open. Give each question its own id.`);
  const unanswered: Unanswered = { key, question, ttlMs, ...Promise.withResolvers<unknown>() };
  tool.unanswered.set(key, unanswered);
  // Questions that are asked together are recorded together: when the first is recorded, the run may pause.
  if (tool.unrecorded.push(unanswered) === 1) queueMicrotask(() => recordQuestions(run, execution, effect, tool));
  return unanswered.promise;
}

function questioningTool(run: AskingRun, execution: Execution, effect: string): QuestioningTool {
  const { context } = run;
  const tools = (context.asking ??= new Map());
  const known = tools.get(effect) as QuestioningTool | undefined;
  if (known) return known;
  const { clock } = context;
  const stopTimers = (): void => {
    for (const cancel of tool.timers) cancel();
    tool.timers.clear();
  };
  const tool: QuestioningTool = {
    unnamed: 0,
    unanswered: new Map(),
    unrecorded: [],
    timers: new Set(),
    continue() {
      stopTimers();
      execution.resumedAt = clock.now();
      for (const { key, question, resolve, reject } of tool.unanswered.values()) {
        const recorded = recordedQuestion(run, effect, key, question);
        if (!recorded) continue;
        tool.unanswered.delete(key);
        try {
          resolve(answerIn(recorded));
        } catch (expired) {
          reject(expired);
        }
      }
    },
    end() {
      stopTimers();
      tools.delete(effect);
    },
  };
  tools.set(effect, tool);
  return tool;
}

/** The call has a question of this key only if it is the same question: an answer to another one does not count. */
function recordedQuestion(run: AskingRun, effect: string, key: string, question: Question): AskedQuestion | undefined {
  return questionsOfCall(run, effect).findLast((one) => one.key === key && isSame(one.question, question));
}

function questionsOfCall({ context, slotFor: find }: AskingRun, effect: string): readonly AskedQuestion[] {
  const slot = find(context.state(), effect);
  return (slot && 'asked' in slot && slot.asked) || [];
}

/** All have their fields in the same order. */
function isSame(one: Question, other: Question): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** The answer to a question. Throws if it has expired. */
function answerIn({ answer, question }: AskedQuestion): unknown {
  if (answer) return structuredClone(answer.value);
  const expired = new Error(`Nobody answered the question "${question.prompt}" in time.`);
  throw Object.assign(expired, { errorType: 'timeout' });
}

function recordQuestions(run: AskingRun, execution: Execution, effect: string, tool: QuestioningTool): void {
  const { context } = run;
  const { clock } = context;
  const at = clock.now();
  const slot = run.slotFor(context.state(), effect);
  const { expiresAt: deadline = Infinity } = (slot && 'parked' in slot && slot.parked) || {};
  const questions = tool.unrecorded.map(({ key, question, ttlMs = Infinity }) => {
    // A question does not outlive the deadline of its call.
    const expiresAt = Math.min(at + ttlMs, deadline);
    return { key, question, ...(expiresAt < Infinity && { expiresAt }) };
  });
  tool.unrecorded = [];
  // The time in which it waits does not count for the timeout of the tool.
  execution.resumedAt = Infinity;
  context.record({ type: 'questions-asked', at, effect, questions }).catch(() => {});
  const asked = questionsOfCall(run, effect);
  for (const [index, { expiresAt }] of asked.entries()) {
    if (expiresAt !== undefined && index >= asked.length - questions.length) {
      watchQuestion(context, { effect, question: index, expiresAt }, tool);
    }
  }
}

/** Reports that a question has expired while this process drives the run. */
function watchQuestion(
  context: RunContext,
  { expiresAt, ...about }: { readonly effect: string; readonly question: number; readonly expiresAt: number },
  tool: QuestioningTool,
): void {
  const { clock } = context;
  const cancel = clock.timer(Math.max(1, expiresAt - clock.now()), () => {
    tool.timers.delete(cancel);
    const at = clock.now();
    if (at < expiresAt) return watchQuestion(context, { ...about, expiresAt }, tool);
    context.record({ type: 'deadline-passed', at, ...about }).catch(() => {});
  });
  tool.timers.add(cancel);
}

interface CheckedQuestion extends Pick<QuestionOptions, 'id' | 'ttlMs'> {
  readonly question: Question;
}

/** A copy of a question, without what is not recorded. Throws for a question that cannot be asked. */
function checkedQuestion({ tool }: Execution, given: string | QuestionOptions): CheckedQuestion {
  const { prompt, choices, schema, id, ttlMs } = typeof given === 'string' ? { prompt: given } : (given ?? {});
  const misuse = (what: string): Error => new Error(`A question of "${tool.name}" ${what}`);
  if (typeof prompt !== 'string' || prompt === '') throw misuse('has no prompt. Say what you want to know.');
  if (choices && schema) throw misuse('has choices and a schema. Give one of the two.');
  if (choices && !(Array.isArray(choices) && choices.length > 0 && choices.every((one) => typeof one === 'string'))) {
    throw misuse('has choices that are not a list of texts. Give at least one text.');
  }
  if (schema !== undefined && !isJson(schema)) throw misuse('has a schema that is not JSON Schema.');
  if (id !== undefined && (typeof id !== 'string' || id === '')) throw misuse('has an id that is not a text.');
  if (ttlMs !== undefined && !(ttlMs > 0 && Number.isFinite(ttlMs))) {
    throw misuse(`has ttlMs ${String(ttlMs)}. Give a number above 0.`);
  }
  const question = structuredClone({ prompt, ...(choices && { choices }), ...(schema && { schema }) });
  return { question, ...(id !== undefined && { id }), ...(ttlMs !== undefined && { ttlMs }) };
}

function isJson(schema: unknown): boolean {
  try {
    return typeof structuredClone(schema) === 'object' && JSON.stringify(schema) !== undefined;
  } catch {
    return false;
  }
}
