import type { ToolSpec } from '@treadle/core';
import type { Told } from './plan.ts';

const WHO = "I am Treadle's demo model: a few fixed rules, not a language model.";
const QUOTED = `(${WHO} What you see above is what the tools returned.)`;
const SELF = `(${WHO})`;

/** Of one result; the answer says what was left out. */
const MAX_QUOTE = 4_000;

export function answerOf(told: readonly Told[], tools: readonly ToolSpec[]): string {
  const unknown = told.filter((one) => one.type === 'unknown');
  if (unknown.length === told.length)
    return help(
      unknown.map(({ text }) => text),
      tools,
    );
  const parts = told.map((one) => {
    switch (one.type) {
      case 'result':
        return `${one.title}:\n\n${quoted(one.text)}`;
      case 'error':
        return `${one.title} failed: ${quoted(one.text)}`;
      case 'said':
      case 'unable':
        return one.text;
      case 'unknown':
        return `I did not understand "${one.text}".`;
      default:
        return one satisfies never;
    }
  });
  return [...parts, told.some(({ type }) => type === 'result') ? QUOTED : SELF].join('\n\n');
}

function quoted(text: string): string {
  const trimmed = text.trimEnd();
  if (trimmed === '') return '(nothing)';
  if (trimmed.length <= MAX_QUOTE) return trimmed;
  const half = MAX_QUOTE / 2;
  return `${trimmed.slice(0, half)}\n… ${trimmed.length - MAX_QUOTE} characters left out …\n${trimmed.slice(-half)}`;
}

function help(unknown: readonly string[], tools: readonly ToolSpec[]): string {
  const names = tools.map(({ name }) => name).join(', ');
  const puzzled = unknown.length === 0 ? '' : ` I did not understand "${unknown.join('", "')}".`;
  return `${WHO}${puzzled}

I understand requests such as these, if there is a tool for them:
- list the files
- read README.md
- search the files for "treadle"
- what is 6 * 7?
- what time is it?
- list the files, then read README.md and search it for treadle

${names === '' ? 'There are no tools here.' : `The tools here: ${names}.`}

For real answers use a real model: set OPENAI_API_KEY and run \`treadle chat --model <name>\`, or name a model in treadle.toml.`;
}
