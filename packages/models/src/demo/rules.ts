import type { ToolSpec } from '@treadle/core';
import { isRecord, parsed } from '../json.ts';

type Input = Record<string, unknown>;

/** A call that the rules derive from one clause of the user's text. */
export interface PlannedCall {
  readonly tool: ToolSpec;
  readonly input: Input;
  /** The clause contains a word of the tool's name, not only of its description. */
  readonly byName: boolean;
  /** The parameter for what the clause is about: "weather in Oslo and Rome" makes two calls that differ in it. */
  readonly subject: string | undefined;
}

/** A clause and what to do for it. `after`: it follows a "then", so the calls before it come first. */
export type Step = { readonly clause: string; readonly after: boolean } & Action;

type Action =
  | { readonly type: 'call'; readonly call: PlannedCall }
  | { readonly type: 'answer'; readonly answer: string }
  | { readonly type: 'unknown' };

/** What a text asks for, clause by clause. `file` is what "it" refers to until a call names a file. */
export function stepsOf(text: string, tools: readonly ToolSpec[], file: string | undefined): Step[] {
  let last: PlannedCall | undefined;
  let lastFile = file;
  const hasGlob = tools.some(({ name }) => name === 'glob');
  // Other tools may have "list" in their names, and the description of glob begins with "Find".
  const forGlob = (clause: string): string =>
    hasGlob ? clause.replace(LIST_FILES, 'glob $1').replace(FIND_TEXT, 'search for') : clause;
  return clausesOf(text).map((step): Step => {
    const { clause } = step;
    const answer = arithmeticIn(clause);
    if (answer !== undefined) return { ...step, type: 'answer', answer };
    let call = callIn(forGlob(clause), tools, lastFile) ?? callIn(forGlob(inPlainVerbs(clause)), tools, lastFile);
    if (call === undefined && last?.subject !== undefined && /^(?!the |an? )\S+(?: \S+)?$/i.test(clause)) {
      call = { ...last, input: { ...last.input, [last.subject]: unquoted(clause) } };
    }
    if (call === undefined) return { ...step, type: 'unknown' };
    const missing = missingIn(call)[0]?.name;
    if (missing) return { ...step, type: 'answer', answer: `To call ${call.tool.name} I need to know: ${missing}.` };
    last = call;
    lastFile = fileIn(call.input) ?? lastFile;
    return { ...step, type: 'call', call };
  });
}

/** The file that the arguments of a call name. */
export function fileIn(input: Input): string | undefined {
  const value = Object.entries(input).find(([name]) => FILE_PARAMETER.test(name))?.[1];
  return typeof value === 'string' ? value : undefined;
}

/** A call that has to be made: of the tool that the text mentions, else of the first. Missing values are invented. */
export function forcedCall(tools: readonly ToolSpec[], text: string): PlannedCall | undefined {
  const call = callIn(text, tools, undefined) ?? (tools[0] && callOf(tools[0], text, undefined));
  if (call === undefined) return undefined;
  for (const { name, type, choices } of missingIn(call)) call.input[name] = choices[0] ?? VALUES[type] ?? text;
  return call;
}

const VALUES: Readonly<Record<string, unknown>> = { number: 1, integer: 1, boolean: false, array: [], object: {} };

/** Quotes and JSON objects match without a group, so that nothing inside them ends a clause. */
const CLAUSE_END = new RegExp(
  String.raw`"[^"]*"|\{(?:[^{}]|\{[^{}]*\})*\}|(?<then>[,;.!?]?\s*\b(?:and )?then\b,?)|` +
    String.raw`(?<end>[,;](?=\s)(?: and\b)?|\sand\s(?!-?\d)|[.!?]+(?=\s|$)|\n)`,
  'gi',
);
const OPENING = /^(?:(?:please|also|now|first|next|finally|can you|could you|tell me)\b[,:]?\s*)+/i;
const CLOSING = /(?:[\s,:]+(?:please|for me|thanks))+$/i;

function clausesOf(text: string): { clause: string; after: boolean }[] {
  const clauses: { clause: string; after: boolean }[] = [];
  const plain = text.replace(/[^\S\n]+/g, ' ');
  let start = 0;
  let after = false;
  for (const match of [...plain.matchAll(CLAUSE_END), undefined]) {
    const { then, end } = match?.groups ?? {};
    if (match !== undefined && then === undefined && end === undefined) continue;
    const clause = plain.slice(start, match?.index).trim().replace(OPENING, '').replace(CLOSING, '');
    if (clause !== '') clauses.push({ clause, after });
    after = then !== undefined;
    start = (match?.index ?? 0) + (match?.[0].length ?? 0);
  }
  return clauses;
}

/** Asks for the files, with a pattern or not, and not for those with a certain content. */
const LIST_FILES = /^(?:ls|list (?:all )?(?:the )?(\S*\*\S* )?files)\b(?! (?:that )?(?:mention|contain)\b)/i;

const FIND_TEXT = /^find\b(?!.*\bfiles\b)/i;

/** Other ways to ask for files, in the verbs that descriptions of tools start with. */
function inPlainVerbs(clause: string): string {
  return clause
    .replace(/^(?:which|what|find|list) (?:the )?files (?:that )?(?:mention|contain)\b/i, 'search for')
    .replace(/^(?:ls|(?:find|what|which|how many)\b.*? files)\b/i, 'list files')
    .replace(/^(?:cat|open|show|summari[sz]e|what is in|what's in|what does)\b/i, 'read')
    .replace(/^(?:find|grep|look for)\b/i, 'search for');
}

/** `6 * 7 = 42`, for a clause that asks for one operation on two numbers. */
function arithmeticIn(clause: string): string | undefined {
  const [, sum, left, sign, right] =
    /^(?:what is |what's |calculate )?((-?\d+(?:\.\d+)?) ?([-+*/]) ?(-?\d+(?:\.\d+)?))$/i.exec(clause) ?? [];
  const [a, b] = [Number(left), Number(right)];
  const value = sign === '+' ? a + b : sign === '-' ? a - b : sign === '*' ? a * b : a / b;
  return sum && `${sum} = ${Number(value.toPrecision(12))}`;
}

/** The tool that shares most words with the clause: one of its name, or two of its description's first sentence. */
function callIn(clause: string, tools: readonly ToolSpec[], lastFile: string | undefined): PlannedCall | undefined {
  const words = wordsOf(clause);
  const shared = (others: readonly string[]): number => words.filter((word) => others.includes(word)).length;
  let best: PlannedCall | undefined;
  let highest = 1;
  for (const tool of tools) {
    const description = wordsOf(tool.description.split('. ', 1)[0]!);
    const inName = namePattern(tool).test(clause) ? 10 : 3 * shared(wordsOf(tool.name));
    const score = inName + shared(description) + shared(description.slice(0, 1));
    if (score <= highest) continue;
    highest = score;
    best = { ...callOf(tool, clause, lastFile), byName: inName > 0 };
  }
  return best;
}

const LIST_PARAMETER = /^(?:path|pattern|glob|dir|directory|folder)$/i;
const FILE_PARAMETER = /^(?:path|file|file_?path|file_?name|dir|directory|folder)$/i;
/** A word with a dot or a slash that does not follow "for", what follows "in" at the end, or "it". */
const FILE =
  /(?<!\S|\bfor )("[^"]*\.\w+"|[^\s*]*[./][^\s*]*\w)(?!\S)|\bin (?:the )?(?!files|folder|project|here)(\S+)$|\bit\b/i;

/** Takes arguments from JSON in the text, `name=value`, enum values, numbers, files, and what the text is about. */
function callOf(tool: ToolSpec, text: string, lastFile: string | undefined): PlannedCall {
  const json = parsed(/\{.*\}/s.exec(text)?.[0] ?? '');
  const input: Input = isRecord(json) ? json : {};
  const numbers: string[] = text.match(/(?<![\w.])-?\d+(?:\.\d+)?(?!\w)/g) ?? [];
  let rest = text.replace(namePattern(tool), ' ');
  let subject: string | undefined;
  const parameters = parametersOf(tool);
  for (const { name, type, required, choices } of parameters) {
    if (Object.hasOwn(input, name)) continue;
    const isNumber = type === 'number' || type === 'integer';
    const value =
      new RegExp(String.raw`(?<!\w)${escapeRegExp(name)}\s*[=:]\s*("[^"]*"|\S+)`, 'i').exec(text)?.[1] ??
      choices.find((choice) => text.toLowerCase().includes(choice.toLowerCase())) ??
      (isNumber && required ? numbers.shift() : undefined);
    if (value !== undefined) input[name] = isNumber ? Number(value) : unquoted(value);
    if (value !== undefined || !FILE_PARAMETER.test(name)) continue;
    const [mention, named, folder] = FILE.exec(rest) ?? [];
    const file = named ?? folder ?? (mention && lastFile);
    if (file === undefined) continue;
    input[name] = unquoted(file);
    rest = rest.replace(mention!, ' ');
    subject = name;
  }
  const target = parameters.find(({ name, type, required, choices }) => {
    const isText = type === 'string' && choices.length === 0;
    return isText && (required || parameters.length === 1) && !Object.hasOwn(input, name);
  });
  if (target !== undefined && /glob|list/i.test(tool.name) && LIST_PARAMETER.test(target.name)) {
    input[target.name] = /\S*\*\S*/.exec(rest)?.[0] ?? (FILE_PARAMETER.test(target.name) ? '.' : '*');
  } else if (target !== undefined) {
    const about = subjectOf(rest, tool);
    if (about !== '') input[target.name] = /regular expression/i.test(tool.description) ? escapeRegExp(about) : about;
    subject = target.name;
  }
  return { tool, input, byName: true, subject };
}

/** A quote, what follows the last preposition, or the words that are not the tool's own. */
function subjectOf(text: string, tool: ToolSpec): string {
  const quote = /"([^"]+)"/.exec(text)?.[1];
  const object = /^.*\b(?:in|for|of|at|about|to|from|on|with)\s+(?:the |a |an )?(.+)$/i.exec(text)?.[1];
  const own = wordsOf(`${tool.name} ${tool.description}`);
  const others = text.split(' ').filter((word) => wordsOf(word).some((part) => !own.includes(part)));
  return quote ?? object?.trim() ?? others.join(' ');
}

/** The properties of a tool's schema. One without a plain type counts as a string. */
function parametersOf({ parameters: { properties, required } }: ToolSpec) {
  return Object.entries(isRecord(properties) ? properties : {}).map(([name, schema]) => {
    const { type, enum: choices } = isRecord(schema) ? schema : {};
    const known: unknown = Array.isArray(type) ? type.find((one) => one !== 'null') : type;
    return {
      name,
      type: typeof known === 'string' ? known : 'string',
      required: Array.isArray(required) && required.includes(name),
      choices: Array.isArray(choices) ? choices.filter((choice) => typeof choice === 'string') : [],
    };
  });
}

function missingIn({ tool, input }: PlannedCall): ReturnType<typeof parametersOf> {
  return parametersOf(tool).filter(({ name, required }) => required && !Object.hasOwn(input, name));
}

const STOP_WORDS = new Set(
  'a an the what is are of to for in on at by with and or it s me my you your this that get set use call do tool'.split(
    ' ',
  ),
);

/** The words of a text, or of a name such as `getWeather`, without those that any text has. */
function wordsOf(text: string): string[] {
  const plain = text.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
  return plain.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== '' && !STOP_WORDS.has(word));
}

function namePattern({ name }: ToolSpec): RegExp {
  return new RegExp(String.raw`(?<!\w)${escapeRegExp(name)}(?!\w)`, 'i');
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
}

function unquoted(text: string): string {
  return text.replace(/^"(.*)"$/, '$1');
}
