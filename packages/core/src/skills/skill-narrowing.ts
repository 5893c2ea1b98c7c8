import type { Narrowing } from '../machine/narrowing.ts';
import type { PolicyRules } from '../policy/rules.ts';
import { skillSource, type Skill } from './skill.ts';

/*
 * What a skill narrows. An entry is the name of a tool, or `Name(form)` for some of its calls.
 *
 * 1. An entry never grants anything: `allowed-tools` are the tools that stay, asked about as before.
 * 2. `Bash(git:*)` and `Bash(git *)` mean commands that begin with these words, `Bash(git status)` this command alone. They
 *    become rules about commands.
 * 3. A form that no rule can express ends on the safe side: an allowed tool is asked about, a disallowed one is blocked, one
 *    that needs approval always needs it.
 */

/** Names of tools in the public format, in lower case, with the tools that they mean here. */
const MEANINGS: Readonly<Record<string, readonly string[]>> = {
  bash: ['bash', 'background_list', 'background_read', 'background_stop', 'background_write'],
  multiedit: ['edit'],
  ls: ['glob'],
  agent: ['task'],
  askuserquestion: ['question'],
  webfetch: ['web_fetch'],
  websearch: ['web_search'],
  todowrite: ['todowrite', 'todoread'],
};

/** With only some commands allowed, nothing may be typed into a program that runs. */
const TYPES_INTO_PROGRAMS = 'background_write';
const COMMANDS = 'bash';

/** An entry of a list of tools. */
export interface ToolEntry {
  readonly text: string;
  /** The tools that it means. */
  readonly tools: readonly string[];
  /** For which calls; absent: for all. */
  readonly form?: CommandForm | { readonly type: 'unknown' };
}

/** `prefix`: commands that begin with the words. `exact`: with nothing after them. */
type CommandForm = { readonly type: 'prefix' | 'exact'; readonly words: string };

export function toolEntry(text: string): ToolEntry {
  const [, name = text, given] = /^([^()]+?)\s*\((.*)\)$/s.exec(text.trim()) ?? [];
  const tools = meaningOf(name.trim());
  const inner = given?.trim();
  if (inner === undefined || inner === '' || inner === '*') return { text, tools };
  return { text, tools, form: tools[0] === COMMANDS ? commandForm(inner) : { type: 'unknown' } };
}

function meaningOf(name: string): readonly string[] {
  const lower = name.toLowerCase();
  const meant = Object.hasOwn(MEANINGS, lower) ? MEANINGS[lower] : undefined;
  if (meant) return meant;
  const [, served] = /^mcp__(.+)$/.exec(name) ?? [];
  // A server alone means all its tools.
  if (served !== undefined) return [/__(?!\*$)/.test(served) ? served : served.replace(/(__\*)?$/, '__*')];
  return [/^[A-Z][A-Za-z]*$/.test(name) ? lower : name];
}

/** An entry of the rules about commands has whole words, or `*` for any one word. */
function commandForm(given: string): NonNullable<ToolEntry['form']> {
  const isPrefix = /(:| )\*$/.test(given);
  const words = given
    .replace(/(:| )\*$/, '')
    .trim()
    .split(/\s+/);
  const isExpressible = words.every((word) => /^[^*?[\]{}:]+$/.test(word));
  return isExpressible ? { type: isPrefix ? 'prefix' : 'exact', words: words.join(' ') } : { type: 'unknown' };
}

/** The narrowing that applies while a skill is active. It has a source also if it narrows nothing. */
export function skillNarrowing(skill: Skill): Narrowing {
  const { name, autonomy } = skill;
  const allowed = skill.allowedTools?.map(toolEntry);
  const blocked = (skill.disallowedTools ?? []).map(toolEntry);
  const asked = (skill.approvals ?? []).map(toolEntry);
  const tools = allowed && allowedNames(allowed);
  const without = namesOf(blocked.filter((one) => !isCommandForm(one)));
  const ask = [...unclearNames(allowed ?? []), ...namesOf(asked.filter((one) => !isCommandForm(one)))];
  const commands = commandLists(allowed ?? [], blocked, asked);
  const defaults = new Map<string, Readonly<Record<string, unknown>>>();
  for (const [tool, given] of Object.entries(skill.defaults ?? {})) {
    const [meant = tool] = toolEntry(tool).tools;
    defaults.set(meant, { ...defaults.get(meant), ...given });
  }
  return {
    source: skillSource(name),
    ...(tools && { tools }),
    ...(without.length > 0 && { without }),
    ...(ask.length > 0 && { ask: [...new Set(ask)] }),
    ...(autonomy !== undefined && { autonomy }),
    ...(commands && { rules: { commands } }),
    ...(defaults.size > 0 && { defaults: Object.fromEntries(defaults) }),
  };
}

function namesOf(entries: readonly ToolEntry[]): readonly string[] {
  return [...new Set(entries.flatMap(({ tools }) => tools))];
}

function allowedNames(entries: readonly ToolEntry[]): readonly string[] {
  const isPartial = isRestricted(entries, COMMANDS);
  return namesOf(entries).filter((name) => !(isPartial && name === TYPES_INTO_PROGRAMS));
}

/** Whether a tool is allowed for some calls only. */
function isRestricted(entries: readonly ToolEntry[], name: string): boolean {
  const about = entries.filter(({ tools }) => tools.includes(name));
  return about.length > 0 && about.every(({ form }) => form !== undefined);
}

function isCommandForm({ form }: ToolEntry): boolean {
  return form !== undefined && form.type !== 'unknown';
}

/** Tools that are allowed for calls that no rule can tell from others. Commands have rules of their own. */
function unclearNames(entries: readonly ToolEntry[]): readonly string[] {
  const others = entries.filter(({ tools }) => !tools.includes(COMMANDS));
  const unclear = others.flatMap(({ form, tools }) => (form?.type === 'unknown' ? tools : []));
  return unclear.filter((name) => isRestricted(entries, name));
}

function commandLists(
  allowed: readonly ToolEntry[],
  blocked: readonly ToolEntry[],
  asked: readonly ToolEntry[],
): PolicyRules['commands'] {
  const isPartial = isRestricted(allowed, COMMANDS);
  const ofCommands = allowed.filter(({ tools }) => tools.includes(COMMANDS));
  const forms = isPartial ? formsOf(ofCommands) : [];
  const others = ofCommands.some(({ form }) => form?.type === 'unknown') ? 'ask' : 'deny';
  const prefixes = forms.flatMap(({ type, words }) => (type === 'prefix' ? `${words} ` : []));
  const isCovered = (words: string): boolean => prefixes.some((prefix) => `${words} `.startsWith(prefix));
  // More words are more specific, so these decide about what follows an exact form.
  const longer = forms.flatMap(({ type, words }) => (type === 'exact' && !isCovered(words) ? `${words} *` : []));
  const rest = isPartial ? ['*', ...longer] : [];
  const deny = [...(others === 'deny' ? rest : []), ...formsOf(blocked).map(({ words }) => words)];
  const ask = [...(others === 'ask' ? rest : []), ...formsOf(asked).map(({ words }) => words)];
  const allow = forms.map(({ words }) => words);
  if (allow.length + deny.length + ask.length === 0) return undefined;
  return { ...(allow.length > 0 && { allow }), ...(ask.length > 0 && { ask }), ...(deny.length > 0 && { deny }) };
}

function formsOf(entries: readonly ToolEntry[]): readonly CommandForm[] {
  return entries.flatMap(({ form }) => (form && form.type !== 'unknown' ? form : []));
}
