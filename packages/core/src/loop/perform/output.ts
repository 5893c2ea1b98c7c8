import { textOf } from '../../messages.ts';
import { fittedContent } from '../../tools/result.ts';
import { validate, type Validated } from '../../tools/schema.ts';
import type { CheckedOutput } from '../finish/strategy.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

/** Holds the answer against the schema that was given for it, or has the typed agent check it. */
export function checkOutput(
  { output, rules, agent, clock, signal }: Stage,
  { id, text, attempt }: EffectOf<'validate-output'>,
  done: Done,
): void {
  const settle = (result: CheckedOutput): void => {
    if (signal.aborted) return;
    done({ type: 'output-checked', at: clock.now(), effect: id, result: fittedOutput(result, rules.maxResultChars) });
  };
  if (attempt !== undefined) return void agent!.check({ text, attempt, rules: rules.agent!, signal }).then(settle);
  const parsed = parse(text);
  if (parsed.type === 'invalid') return settle(parsed);
  const verdict = validate(output ?? rules.output!, parsed.value);
  if (verdict instanceof Promise) void verdict.then((validated) => settle(validated));
  else settle(verdict);
}

/** What is wrong is told to the model as a result, and may be no longer than one. */
function fittedOutput(result: CheckedOutput, most: number): CheckedOutput {
  if (result.type === 'valid') return result;
  const fit = (problem: string): string => textOf(fittedContent([{ type: 'text', text: problem }], most));
  return { ...result, problems: result.problems.map(fit) };
}

/** Many a model puts its JSON into a code fence, whatever it is told. */
function parse(text: string): Validated {
  const fenced = /^\s*```[a-z]*\s*([\s\S]*?)\s*```\s*$/i.exec(text);
  try {
    return { type: 'valid', value: JSON.parse(fenced?.[1] ?? text) };
  } catch (error) {
    return { type: 'invalid', problems: [`it is not JSON (${(error as Error).message.slice(0, 200)})`] };
  }
}
