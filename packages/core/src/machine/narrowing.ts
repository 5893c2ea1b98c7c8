import type { ToolChoice } from '../model.ts';
import { isPlain } from '../plain.ts';
import type { PolicyRules } from '../policy/rules.ts';
import { stableJson } from './history.ts';
import type { ToolFacts } from './rules.ts';
import type { State } from './state.ts';

/**
 * What a run may do at most. A result of a tool narrows the run from the next turn on, and never widens it: every narrowing
 * of a run applies. Only `narrowing-lifted`, an event from outside, undoes it.
 */
export interface Narrowing {
  /** Who narrows, such as `skill:NAME` or `plan`. It can be lifted by this name; without one, as `unnamed`. */
  readonly source?: string;
  /** The names of the tools that may be called. In all lists, `NAME__*` means all tools of the MCP server NAME. */
  readonly tools?: readonly string[];
  /** The names of tools that may not be called. */
  readonly without?: readonly string[];
  /** The names of tools whose calls people have to approve. */
  readonly ask?: readonly string[];
  /** How far the run may act without being asked, for the policy. The lowest applies. */
  readonly autonomy?: Autonomy;
  /** Calls are judged by them too, and the strictest verdict applies. Their `autonomy` is 3 by default. */
  readonly rules?: PolicyRules;
  /** Arguments for calls that lack them, by tool and name. Different values of two narrowings do not apply. */
  readonly defaults?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** It belongs to the run, such as what its agent may do: nobody can lift it, and the next run of a conversation does not take it over. */
  readonly fixed?: true;
}

/** The narrowings of a run. Their order does not matter. Undefined: none. */
export type Narrowings = readonly Narrowing[] | undefined;

/** 0: read only, 1: supervised, 2: bounded, 3: full. */
export type Autonomy = 0 | 1 | 2 | 3;

/** Adds one narrowing or several. Ignores what is not a narrowing, and what is there already. */
export function withNarrowing(had: Narrowings, given: Narrowing | Narrowings): Narrowings {
  const known = had?.map(stableJson) ?? [];
  const added = listOf(given).filter((one) => Object.keys(one).length > 0 && !known.includes(stableJson(one)));
  return added.length === 0 ? had : [...(had ?? []), ...added];
}

/** The name that a narrowing can be lifted by. */
export function narrowingSource({ source = 'unnamed' }: Narrowing): string {
  return source;
}

/** The rules by which calls are judged besides the policy; undefined: there are none. */
export function rulesOfNarrowings(narrowings: Narrowings): readonly PolicyRules[] | undefined {
  const rules = narrowings?.flatMap((one) => one.rules ?? []) ?? [];
  return rules.length === 0 ? undefined : rules;
}

/** Whether something narrows the run, in this turn or from the next one on. `source`: only what has this name. */
export function isNarrowedBy({ narrowed = [], narrowing = [] }: State, source: string | undefined): boolean {
  return [...narrowed, ...narrowing].some(isLiftedBy(source));
}

/** Without those of a source, or without all. */
export function withoutNarrowing(had: Narrowings = [], source: string | undefined): Narrowings {
  const isLifted = isLiftedBy(source);
  return unlessEmpty(had.filter((one) => !isLifted(one)));
}

function isLiftedBy(source: string | undefined): (one: Narrowing) => boolean {
  return (one) => !one.fixed && (source ?? narrowingSource(one)) === narrowingSource(one);
}

/** Those that the next run of a conversation takes over. */
export function withoutFixed(had: Narrowings = []): Narrowings {
  return unlessEmpty(had.filter(({ fixed }) => !fixed));
}

function unlessEmpty(narrowings: readonly Narrowing[]): Narrowings {
  return narrowings.length === 0 ? undefined : narrowings;
}

function listOf(given: unknown): readonly Narrowing[] {
  return [given].flat().filter((one) => typeof one === 'object' && one !== null) as readonly Narrowing[];
}

export function lowestAutonomy(narrowings: Narrowing | Narrowings): Autonomy | undefined {
  const levels = listOf(narrowings).flatMap(({ autonomy }) => (isAutonomy(autonomy) ? autonomy : []));
  return levels.length === 0 ? undefined : (Math.min(...levels) as Autonomy);
}

/** Whether a value is a valid narrowing. Malformed rules deny every call. */
export function isNarrowing(value: unknown): value is Narrowing {
  if (typeof value !== 'object' || value === null) return false;
  const {
    source = '-',
    tools = [],
    without = [],
    ask = [],
    autonomy = 0,
    rules = {},
    defaults = {},
    fixed = true,
    ...others
  } = value as Narrowing;
  const lists: readonly unknown[] = [tools, without, ask];
  return (
    typeof source === 'string' &&
    source !== '' &&
    lists.every((names) => Array.isArray(names) && names.every((name) => typeof name === 'string')) &&
    isAutonomy(autonomy) &&
    [rules, defaults, ...Object.values(defaults)].every(isTable) &&
    fixed === true &&
    Object.keys(others).length === 0
  );
}

function isTable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && isPlain(value);
}

export const NARROWING_FORM =
  'Use some of { source, tools: [names], without: [names], ask: [names], autonomy: 0 to 3, rules, defaults, fixed: true }';

function isAutonomy(value: unknown): value is Autonomy {
  return [0, 1, 2, 3].includes(value as number);
}

/** Whether a narrowing of the run can make people decide about calls, also without a policy. */
export function isNarrowingJudged(narrowed: NonNullable<State['narrowed']>): boolean {
  return narrowed.some(({ ask, rules }) => ask ?? rules);
}

/**
 * Whether the narrowing of the run lets a tool be called. The model can always finish, and call tools that are marked. In runs
 * of earlier versions, without marks, it can ask and read on.
 */
export function isWithinNarrowing({ narrowed, rules: { agent, marks }, tools }: State, name: string): boolean {
  if (!narrowed?.some((one) => !lets(one, name))) return true;
  if (name === agent?.output || name === agent?.submit || (!marks && name === QUESTION)) return true;
  const facts = tools.find((one) => one.name === name);
  return facts !== undefined && (marks ? facts.unnarrowed === true : isReadResult(facts));
}

function lets({ tools, without }: Narrowing, name: string): boolean {
  return (!Array.isArray(tools) || isListed(tools, name)) && !isListed(without, name);
}

/** Whether a list of names, or of `NAME__*`, has a tool. */
export function isListed(names: readonly string[] | undefined, name: string): boolean {
  return Array.isArray(names) && names.some((one) => one === name || isServerOf(one, name));
}

/** A journal may have anything in its lists. */
function isServerOf(one: unknown, name: string): boolean {
  return typeof one === 'string' && one.endsWith('__*') && name.startsWith(one.slice(0, -1));
}

/** The tool with which a model asks a person, in runs of earlier versions. */
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
