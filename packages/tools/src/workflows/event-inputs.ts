import { evaluate } from './evaluate.ts';
import { celIn, compileValue, namesIn } from './expressions.ts';
import { lookedUp } from './program.ts';

/* The inputs of a workflow or an agent that an event starts: values with expressions that see `event`. */

export type EventInputs = Readonly<Record<string, unknown>>;

/** What is wrong with such inputs: expressions that are not valid, or that name something else. */
export function eventInputProblems(inputs: EventInputs): readonly string[] {
  const problems: string[] = [];
  const compiled = compileValue(inputs, [], (path, message) => void problems.push(`${path.join('.')}: ${message}`));
  for (const [root] of namesIn(compiled)) {
    if (root !== 'event') problems.push(`There is no value "${String(root)}". Expressions see event.`);
  }
  return problems;
}

/** The inputs for an event. Rejects if they name what the event does not have. */
export async function inputsForEvent(inputs: EventInputs, event: unknown): Promise<EventInputs> {
  const compiled = compileValue(inputs, [], () => {});
  const texts = [...new Set(celIn(compiled).map(({ text }) => text))];
  const expressions = Object.fromEntries(texts.map((text, index) => [`e${index}`, text]));
  const found = texts.length > 0 ? await evaluate(expressions, { event }) : {};
  const evaluated = new Map(texts.map((text, index) => [text, found[`e${index}`]]));
  return lookedUp({ inputs: null, variables: { event }, results: new Map() }, compiled, evaluated) as EventInputs;
}
