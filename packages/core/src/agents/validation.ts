import { messageOf } from '../errors.ts';
import type { CheckedOutput } from '../loop/finish/strategy.ts';
import { parseArguments } from '../tools/arguments.ts';
import type { ValidationContext, ValidationFailure } from './define.ts';
import { validateOutput, type AnyAgent } from './tools.ts';

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
  return async (text: string, attempt: number, signal: AbortSignal): Promise<CheckedOutput> => {
    const read = readOutput(text);
    if (!('given' in read)) return refused(agent, input, attempt, { problems: [read.problem] });
    const { given } = read;
    const verdict = await validateOutput(agent, given);
    if (verdict.type === 'invalid')
      return refused(agent, input, attempt, { problems: verdict.problems, output: given });
    const about = { input, attempt, signal, context };
    for (const validator of agent.validation.customValidators ?? []) {
      const problems = await problemsOf(validator, verdict.value, about);
      if (signal.aborted) break;
      if (problems.length > 0)
        return refused(agent, input, attempt, { validator: validator.name, problems, output: given });
    }
    accept({ output: verdict.value });
    // What a schema makes of it (a date, a set) may have no JSON form, so the journal keeps what the model gave.
    return { type: 'valid', value: given };
  };
}

/** The output that a run ended with, made anew from its arguments: for a run that was accepted elsewhere. */
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

async function refused(
  agent: AnyAgent,
  input: unknown,
  attempt: number,
  failure: Omit<ValidationFailure, 'message'>,
): Promise<CheckedOutput> {
  const { problems, validator } = failure;
  const { maxAttempts } = agent.validation;
  const result = { type: 'invalid', problems, ...(validator !== undefined && { validator }) } as const;
  if (!agent.prompts.error || attempt >= maxAttempts) return result;
  try {
    const told = { ...failure, message: failureText(failure) };
    const prompt: unknown = await agent.prompts.error(told, { input, attempt, maxAttempts });
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
