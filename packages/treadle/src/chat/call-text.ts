import { textOf, type ToolCall, type ToolResult } from '@treadle/core';
import { oneLine } from '../terminal/printable.ts';

/** The arguments that say what a call touches, in this order. */
const SUBJECTS = ['path', 'command', 'pattern', 'query', 'url', 'name', 'task', 'prompt', 'text'] as const;

/** The object in the arguments of a call; undefined: they are not one. */
export function argumentsOf({
  arguments: text,
}: Pick<ToolCall, 'arguments'>): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}

/** What a call touches, for a line that names it: a path, a command, or its arguments. */
export function subjectOf(call: Pick<ToolCall, 'name' | 'arguments'>): string {
  const given = argumentsOf(call);
  if (!given) return call.arguments;
  const { patch } = given;
  if (typeof patch === 'string') return patchedFiles(patch).join(', ');
  const subjects = SUBJECTS.flatMap((name) => (typeof given[name] === 'string' ? given[name] : []));
  const [subject] = subjects;
  if (subject === undefined) return Object.keys(given).length === 0 ? '' : call.arguments;
  // A search says what for and where.
  return call.name === 'grep' && typeof given['path'] === 'string' && typeof given['pattern'] === 'string'
    ? `${given['pattern']} in ${given['path']}`
    : subject;
}

/** The files that a patch names, in its order. */
export function patchedFiles(patch: string): readonly string[] {
  const named = [
    ...patch.matchAll(/^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b\/)?|--- (?:a\/)?)([^\t\n]+)/gm),
  ];
  return [...new Set(named.map(([, file = '']) => file.trim()))].filter((file) => file !== '/dev/null');
}

/** A line that says what went wrong. */
const TELLING = /\b(\w*Error|error|failed|failure|fatal|panic|denied|not found)\b/;

/** What a command has printed, in a few words: its last line, or the one with the error. Undefined: it has not run. */
function outputWords(text: string, isError: boolean): string | undefined {
  const [, output = '', ending] = /^([^]*?)\n?(\[(?:exit code|killed by) [^\]]*\])?$/.exec(text) ?? [];
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  if (isError && ending === undefined) return undefined;
  const line = (isError ? lines.find((one) => TELLING.test(one)) : undefined) ?? lines.at(-1) ?? '';
  const count = lines.length > 1 && !isError ? ` (the last of ${lines.length} lines)` : '';
  const code = ending === '[exit code 0]' && line !== '' ? undefined : ending?.slice(1, -1);
  return [code, `${line}${count}`].filter(Boolean).join(': ');
}

/** A result in a few words. `tool`: the name of its tool. */
export function resultWords(result: Pick<ToolResult, 'content' | 'isError'>, tool?: string): string {
  const others = result.content
    .flatMap((part) => (part.type === 'image' || part.type === 'file' ? `[${part.type} ${part.mediaType}]` : []))
    .join(' ');
  // The line names the tool already.
  const text = textOf(result.content)
    .replace(/\n+$/, '')
    .replace(/^The call of "[^"\n]*" was (?=(?:not approved|denied): )/, '')
    .replace(/^not approved: The user said no: /, 'not approved: ');
  if (text === '') return others || 'done';
  const printed = tool === 'bash' ? outputWords(text, result.isError) : undefined;
  if (printed !== undefined) return oneLine(printed, 400);
  const lines = text.split('\n');
  const first = lines.find((line) => line.trim() !== '') ?? '';
  const words = lines.length === 1 || result.isError ? first : `${lines.length} lines: ${first}`;
  return oneLine(others === '' ? words : `${others} ${words}`, 400);
}
