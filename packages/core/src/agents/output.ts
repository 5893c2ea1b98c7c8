import { messageOf } from '../errors.ts';
import type { CheckedOutput } from '../machine/finish/finish.ts';
import type { AgentCode } from '../driver/perform.ts';
import { parseArguments } from '../tools/execute.ts';
import type { PatternMatcher } from '../tools/json-schema.ts';
import type { AnyAgent, RejectedAttempt, ValidationContext, ValidationFailure } from './define.ts';
import { validateOutput } from './tools.ts';

/* The check of a proposed output. It is loaded when the first agent is executed. */

/** An output that was accepted, as the schema transforms it. */
export interface Accepted {
  readonly output: unknown;
}

interface OutputCheckOptions {
  readonly agent: AnyAgent;
  readonly input: unknown;
  readonly context: unknown;
  readonly matchPattern?: PatternMatcher | undefined;
  readonly onAccepted: (accepted: Accepted) => void;
}

/** Validates an output against the schema, then with each custom validator. A rejection includes the error prompt. */
export function outputChecker(options: OutputCheckOptions): AgentCode['check'] {
  const { agent, input, context, matchPattern, onAccepted } = options;
  return async ({ text, attempt, rules, signal }) => {
    const reject = (failure: Omit<ValidationFailure, 'message'>): Promise<CheckedOutput> =>
      rejectOutput(agent, failure, { input, attempt, maxAttempts: rules.maxAttempts });
    const parsed = parseOutput(text);
    if (!('value' in parsed)) return reject({ problems: [parsed.problem] });
    const verdict = await validateOutput(agent, parsed.value, matchPattern);
    if (verdict.type === 'invalid') return reject({ problems: verdict.problems, output: parsed.value });
    const { customValidators = [] } = agent.validation;
    for (const validator of customValidators) {
      const problems = await problemsOf(validator, verdict.value, { input, attempt, signal, context });
      if (signal.aborted) break;
      if (problems.length > 0) return reject({ validator: validator.name, problems, output: parseAgain(text) });
    }
    // Its result does not count any more, and another attempt may have been accepted.
    if (signal.aborted) return { type: 'invalid', problems: ['the check was aborted'] };
    // The journal stores the arguments, because the output of a schema (a Date, a Set) may have no JSON form.
    const args = parseAgain(text);
    const again = customValidators.length > 0 && (await acceptedOutput(agent, args, matchPattern));
    onAccepted(again || { output: verdict.value });
    return { type: 'valid', value: args };
  };
}

/** A fresh value: validators may have changed the one they got, and a resumed run has only the text. */
function parseAgain(text: string): unknown {
  const parsed = parseOutput(text);
  return 'value' in parsed ? parsed.value : undefined;
}

/** Restores an accepted output from the arguments in the journal. Undefined if the schema now rejects them. */
export async function acceptedOutput(
  agent: AnyAgent,
  args: unknown,
  matchPattern?: PatternMatcher,
): Promise<Accepted | undefined> {
  const verdict = await validateOutput(agent, args, matchPattern);
  return verdict.type === 'valid' ? { output: verdict.value } : undefined;
}

/** Parses the arguments of a call of the output tool. */
export function parseOutput(text: string): { readonly value: unknown } | { readonly problem: string } {
  // Repairable arguments were already repaired. A text that still needs a repair comes from a reply that was cut off.
  const parsed = parseArguments(text, true);
  if (parsed.type === 'parsed') return { value: parsed.value };
  const lenient = parseArguments(text, false);
  return { problem: lenient.type === 'problem' ? lenient.problem : parsed.problem };
}

type Validator = NonNullable<AnyAgent['validation']['customValidators']>[number];

async function problemsOf(
  validator: Validator,
  output: unknown,
  context: ValidationContext<unknown>,
): Promise<readonly string[]> {
  try {
    const verdict: unknown = await validator.validate(output, context);
    if (verdict === undefined || verdict === null || verdict === true || verdict === '') return [];
    if (verdict === false) return ['it is not accepted'];
    return (Array.isArray(verdict) ? verdict : [verdict]).map(messageOf);
  } catch (thrown) {
    return [messageOf(thrown)];
  }
}

async function rejectOutput(
  { prompts }: AnyAgent,
  failure: Omit<ValidationFailure, 'message'>,
  rejected: RejectedAttempt<unknown>,
): Promise<CheckedOutput> {
  const { problems, validator } = failure;
  const result = { type: 'invalid', problems, ...(validator !== undefined && { validator }) } as const;
  if (!prompts.error || rejected.attempt >= rejected.maxAttempts) return result;
  try {
    const prompt: unknown = await prompts.error({ ...failure, message: failureText(failure) }, rejected);
    if (typeof prompt === 'string' && prompt.trim() !== '') return { ...result, prompt };
    return { ...result, promptProblem: 'prompts.error returned no text.' };
  } catch (thrown) {
    return { ...result, promptProblem: `prompts.error failed: ${messageOf(thrown)}` };
  }
}

/** The `message` of a failure. */
export function failureText({ validator, problems }: Omit<ValidationFailure, 'message'>): string {
  const by = validator === undefined ? 'The output does not match its schema' : `"${validator}" rejected the output`;
  return `${by}: ${problems.join('; ')}`;
}
