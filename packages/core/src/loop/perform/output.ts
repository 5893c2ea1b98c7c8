import { validate, type Validated } from '../../tools/validate.ts';
import type { CheckedOutput } from '../finish/strategy.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

/** Holds the answer against the schema that was given for it, or has the typed agent check it. */
export function checkOutput(
  { output, rules, agent, clock, signal }: Stage,
  { id, text, attempt }: EffectOf<'validate-output'>,
  done: Done,
): void {
  const settle = (result: CheckedOutput): void => {
    if (!signal.aborted) done({ type: 'output-checked', at: clock.now(), effect: id, result });
  };
  if (agent && attempt !== undefined) return void agent.check(text, attempt, signal).then(settle);
  const parsed = parse(text);
  if (parsed.type === 'invalid') return settle(parsed);
  const verdict = validate(output ?? rules.output!, parsed.value);
  if (verdict instanceof Promise) void verdict.then((validated) => settle(validated));
  else settle(verdict);
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
