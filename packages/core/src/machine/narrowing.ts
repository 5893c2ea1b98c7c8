import type { ToolChoice } from '../model.ts';
import type { ToolFacts } from './rules.ts';
import type { State } from './state.ts';

/**
 * What a run may do at most. A result of a tool narrows the run from the next turn on, and never widens it: the tools are
 * intersected, and the lowest autonomy applies. Only `narrowing-lifted`, an event from outside, undoes it.
 */
export interface Narrowing {
  /** The names of the tools that may be called. */
  readonly tools?: readonly string[];
  /** How far the run may act without being asked, for the policy. */
  readonly autonomy?: Autonomy;
}

/** 0: read only, 1: supervised, 2: bounded, 3: full. */
export type Autonomy = 0 | 1 | 2 | 3;

/** Both together. The result does not depend on the order. Ignores what is not a narrowing. */
export function narrower(first: Narrowing | undefined, second: Narrowing | undefined): Narrowing | undefined {
  const sets = [first, second].flatMap((one) => (Array.isArray(one?.tools) ? [one.tools as readonly string[]] : []));
  const [some, others = some] = sets;
  const tools = some && [...new Set(some)].filter((name) => others!.includes(name)).toSorted();
  const levels = [first, second].flatMap((one) => (isAutonomy(one?.autonomy) ? one.autonomy : []));
  const autonomy = levels.length === 0 ? undefined : (Math.min(...levels) as Autonomy);
  if (!tools && autonomy === undefined) return undefined;
  return { ...(tools && { tools }), ...(autonomy !== undefined && { autonomy }) };
}

/** Whether a value is a valid narrowing. */
export function isNarrowing(value: unknown): value is Narrowing {
  if (typeof value !== 'object' || value === null) return false;
  const { tools, autonomy, ...others } = value as Record<string, unknown>;
  const named = tools === undefined || (Array.isArray(tools) && tools.every((name) => typeof name === 'string'));
  return named && (autonomy === undefined || isAutonomy(autonomy)) && Object.keys(others).length === 0;
}

function isAutonomy(value: unknown): value is Autonomy {
  return value === 0 || value === 1 || value === 2 || value === 3;
}

/** Whether the narrowing of the run lets a tool be called. The model can always ask, read on, and finish. */
export function isWithinNarrowing({ narrowed, rules: { agent }, tools }: State, name: string): boolean {
  if (narrowed?.tools === undefined || narrowed.tools.includes(name)) return true;
  if (name === QUESTION || name === agent?.output || name === agent?.submit) return true;
  return tools.some((facts) => facts.name === name && isReadResult(facts));
}

/** The tool with which a model asks a person. */
const QUESTION = 'question';

/** A tool choice that the narrowing makes impossible does not apply. */
export function narrowedChoice(state: State, choice: ToolChoice): ToolChoice {
  if (typeof choice === 'object') return isWithinNarrowing(state, choice.tool) ? choice : 'auto';
  if (choice !== 'required') return choice;
  return state.tools.some(({ name }) => isWithinNarrowing(state, name)) ? choice : 'auto';
}

export const READ_RESULT = 'read_result';

/** Identifies the tool in a journal, because a tool of the user may have its name. */
export const READ_RESULT_DESCRIPTION = 'Reads the rest of a tool result that was too long to be shown whole';
/** With the descriptions that journals of earlier versions have. */
const DESCRIPTIONS = [READ_RESULT_DESCRIPTION, 'Reads on in a tool result that was too long to be shown whole'];

/** Whether a tool is the loop's own, which is available whenever it is needed. */
export function isReadResult({ name, description }: ToolFacts): boolean {
  return DESCRIPTIONS.includes(description) && name.startsWith(READ_RESULT);
}
