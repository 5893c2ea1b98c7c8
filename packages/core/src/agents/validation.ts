import { messageOf } from '../errors.ts';
import type { CheckedOutput } from '../loop/finish/strategy.ts';
import { parseArguments } from '../tools/execute.ts';
import type { Proposed } from '../loop/perform/stage.ts';
import type { RejectedAttempt, ValidationContext, ValidationFailure } from './define.ts';
import { validateOutput } from './output-form.ts';
import type { AnyAgent } from './tools.ts';

/** An output that was accepted, as its schema gives it. */
export interface Accepted {
  readonly output: unknown;
}

interface Validation {
  readonly agent: AnyAgent;
  readonly input: unknown;
  readonly context: unknown;
  readonly accept: (accepted: Accepted) => void;
}

/** Holds an output against the schema, then against each custom validator, and words the failure for the model. */
export function outputCheck({ agent, input, context, accept }: Validation) {
  return async ({ text, attempt, rules, signal }: Proposed): Promise<CheckedOutput> => {
    const refused = (failure: Omit<ValidationFailure, 'message'>): Promise<CheckedOutput> =>
      rejection(agent, failure, { input, attempt, maxAttempts: rules.maxAttempts });
    const read = readOutput(text);
    if (!('given' in read)) return refused({ problems: [read.problem] });
    const verdict = await validateOutput(agent, read.given);
    if (verdict.type === 'invalid') return refused({ problems: verdict.problems, output: read.given });
    const about = { input, attempt, signal, context };
    const { customValidators = [] } = agent.validation;
    for (const validator of customValidators) {
      const problems = await problemsOf(validator, verdict.value, about);
      if (signal.aborted) break;
      if (problems.length > 0) return refused({ validator: validator.name, problems, output: givenIn(text) });
    }
    // What a schema makes of it (a date, a set) may have no JSON form, so the journal keeps what the model gave.
    const given = givenIn(text);
    accept((customValidators.length > 0 && (await acceptedAgain(agent, given))) || { output: verdict.value });
    return { type: 'valid', value: given };
  };
}

/** Made anew: validators may have changed what they were given, and a run that is taken up again has nothing else. */
function givenIn(text: string): unknown {
  const read = readOutput(text);
  return 'given' in read ? read.given : undefined;
}

/** An output that was accepted, made anew from what the model gave. */
export async function acceptedAgain(agent: AnyAgent, given: unknown): Promise<Accepted | undefined> {
  const verdict = await validateOutput(agent, given);
  return verdict.type === 'valid' ? { output: verdict.value } : undefined;
}

/** An output from the arguments by which the model gave it. */
export function readOutput(text: string): { readonly given: unknown } | { readonly problem: string } {
  // What could be mended has been; what still needs it comes from a reply that was cut off, and is not to be guessed.
  const parsed = parseArguments(text, true);
  if (parsed.type === 'parsed') return { given: parsed.value };
  const mended = parseArguments(text, false);
  return { problem: mended.type === 'problem' ? mended.problem : parsed.problem };
}

type Validator = NonNullable<AnyAgent['validation']['customValidators']>[number];

async function problemsOf(
  validator: Validator,
  output: unknown,
  about: ValidationContext<unknown>,
): Promise<readonly string[]> {
  try {
    const verdict: unknown = await validator.validate(output, about);
    if (verdict === undefined || verdict === null || verdict === true || verdict === '') return [];
    if (verdict === false) return ['it is not accepted'];
    return (Array.isArray(verdict) ? verdict : [verdict]).map(messageOf);
  } catch (thrown) {
    return [messageOf(thrown)];
  }
}

async function rejection(
  { prompts }: AnyAgent,
  failure: Omit<ValidationFailure, 'message'>,
  about: RejectedAttempt<unknown>,
): Promise<CheckedOutput> {
  const { problems, validator } = failure;
  const result = { type: 'invalid', problems, ...(validator !== undefined && { validator }) } as const;
  if (!prompts.error || about.attempt >= about.maxAttempts) return result;
  try {
    const prompt: unknown = await prompts.error({ ...failure, message: failureText(failure) }, about);
    if (typeof prompt === 'string' && prompt.trim() !== '') return { ...result, prompt };
    return { ...result, promptProblem: 'prompts.error gave no text.' };
  } catch (thrown) {
    return { ...result, promptProblem: `prompts.error failed: ${messageOf(thrown)}` };
  }
}

/** In one sentence. */
export function failureText({ validator, problems }: Omit<ValidationFailure, 'message'>): string {
  const by = validator === undefined ? 'The output does not match its schema' : `"${validator}" refused the output`;
  return `${by}: ${problems.join('; ')}`;
}
