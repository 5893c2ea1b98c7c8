import type { ToolSpec } from '@treadle/core';
import { argumentsIn, missing, parametersOf, placeholder, type Arguments, type Parameter } from './parameters.ts';
import type { Choice } from './roles.ts';

export interface Mention {
  readonly tool: ToolSpec;
  readonly given: Arguments;
  /** Required parameters that the words do not tell. */
  readonly missing: readonly string[];
  /** The tool's own name was spoken of, not only what it is described to do. */
  readonly byName: boolean;
}

const VERBS =
  /^(?:get|set|do|fetch|make|run|list|read|find|search|query|call|use|tool|the|a|an|of|to|for|in|on|by|and|with)$/;
const EMPTY =
  /^(?:what|whats|is|are|the|a|an|me|my|of|to|for|in|on|at|by|with|and|it|its|like|please|current|now|today|get|fetch|use|call|run|invoke|tell|show|give|tool|how|does|do|about|from|this|that|you|your|can|will|be|or|if|as|any|some|there|here|have|has)$/;

/** A tool that a text speaks of: by its name, or by at least two words of its description. */
export function mentionIn(words: string, tools: readonly ToolSpec[]): Mention | undefined {
  const spoken = wordsOf(words).filter((word) => !EMPTY.test(word));
  let best: { tool: ToolSpec; score: number; byName: boolean } | undefined;
  for (const tool of tools) {
    const whole = nameIn(tool).test(words) ? 10 : 0;
    const name =
      hits(
        spoken,
        wordsOf(tool.name).filter((word) => !VERBS.test(word)),
      ) * 3;
    const description = hits(
      spoken,
      wordsOf(tool.description).filter((word) => !EMPTY.test(word)),
    );
    const score = whole + name + description;
    const enough = whole > 0 || name > 0 || description >= 2;
    if (enough && score > (best?.score ?? 0)) best = { tool, score, byName: whole + name > 0 };
  }
  return best && { ...filled(best.tool, words), byName: best.byName };
}

/** The same tool with another object: "the weather in Oslo and Rome". */
export function mentionLike(tool: ToolSpec, words: string): Mention {
  return { ...filled(tool, words), byName: true };
}

/** A call that must be made, with whatever fits. */
export function forcedCall(tool: ToolSpec, words: string): Choice {
  const { given } = filled(tool, words);
  for (const parameter of parametersOf(tool)) {
    if (parameter.required && !(parameter.name in given)) given[parameter.name] = placeholder(parameter, words);
  }
  return { tool, given };
}

function filled(tool: ToolSpec, words: string): { tool: ToolSpec; given: Arguments; missing: string[] } {
  const parameters = parametersOf(tool);
  const given = argumentsIn(/\{[^{}]*\}/.exec(words)?.[0] ?? '');
  let numbers: string[] = words.match(/(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]\w)/g) ?? [];
  for (const parameter of parameters) {
    if (parameter.name in given) continue;
    const told = spelledOut(parameter, words) ?? chosen(parameter, words);
    if (told !== undefined) given[parameter.name] = told;
    else if (isNumeric(parameter) && parameter.required && numbers.length > 0) {
      given[parameter.name] = Number(numbers[0]);
      numbers = numbers.slice(1);
    }
  }
  const open = parameters.filter(
    ({ name, type, choices }) => !(name in given) && type === 'string' && choices.length === 0,
  );
  const target = open.find(({ required }) => required) ?? (parameters.length === 1 ? open[0] : undefined);
  const object = target && objectOf(words, tool);
  if (target !== undefined && object) given[target.name] = object;
  return { tool, given, missing: missing(parameters, given) };
}

/** `city=Oslo` or `city: Oslo`. */
function spelledOut(parameter: Parameter, words: string): unknown {
  const value = new RegExp(String.raw`(?<!\w)${parameter.name}\s*[=:]\s*(\S+)`, 'i').exec(words)?.[1];
  return value === undefined || !isNumeric(parameter) ? value : Number(value);
}

function chosen({ choices }: Parameter, words: string): string | undefined {
  return choices.find((choice) => words.toLowerCase().includes(choice.toLowerCase()));
}

/** What a sentence is about: what follows its last preposition, else what is left without the words for the tool. */
function objectOf(words: string, tool: ToolSpec): string {
  const plain = words.replace(nameIn(tool), ' ').trim();
  const after = /^.*\b(?:in|for|of|at|about|to|from|on|with|named|called)\s+(?:the\s+)?(.+)$/i.exec(plain)?.[1];
  if (after !== undefined) return after.replace(/\s+(?:like|now|today|right now)$/i, '');
  const own = wordsOf(tool.name);
  const left = plain.split(/\s+/).filter((word) => {
    const [bare = ''] = wordsOf(word);
    return bare !== '' && !EMPTY.test(bare) && !own.some((part) => alike(part, bare));
  });
  return left.join(' ');
}

function nameIn({ name }: ToolSpec): RegExp {
  return new RegExp(String.raw`(?<!\w)${name.replace(/\W/g, String.raw`\$&`)}(?!\w)`, 'i');
}

function hits(spoken: readonly string[], known: readonly string[]): number {
  return spoken.filter((word) => known.some((other) => alike(word, other))).length;
}

function alike(one: string, other: string): boolean {
  if (one === other) return true;
  const shorter = Math.min(one.length, other.length);
  return (
    shorter >= 4 &&
    Math.abs(one.length - other.length) <= 3 &&
    one.slice(0, shorter - 1) === other.slice(0, shorter - 1)
  );
}

function wordsOf(text: string): string[] {
  return text
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '');
}

function isNumeric({ type }: Parameter): boolean {
  return type === 'number' || type === 'integer';
}
