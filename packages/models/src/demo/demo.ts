import {
  textOf,
  type AssistantPart,
  type JsonSchema,
  type Message,
  type Model,
  type ModelRequest,
  type ToolSpec,
} from '@treadle/core';
import { isRecord, parsed } from '../json.ts';
import { fileIn, forcedCall, stepsOf, type PlannedCall } from './rules.ts';

const WHO = "I am Treadle's demo model: a few fixed rules, not a language model.";
/** How much of a user message is read, and how much of a result is quoted, in characters. */
const MAX_READ = 2_000;
const MAX_QUOTE = 4_000;

/**
 * A stand-in for a language model that needs neither a key nor a network. It follows fixed rules: it calls the tools
 * that the user's text mentions, quotes their results, and says what it is. The same request gets the same reply.
 */
export function demo(): Model {
  return {
    id: 'demo',
    provider: 'demo',
    priced: true,
    maxCost: () => 0,
    async reply(request, emit, signal) {
      const planned = nextOf(request);
      const next = typeof planned === 'string' && request.output ? jsonFor(request.output, planned) : planned;
      const content: AssistantPart[] = [];
      if (typeof next === 'string') {
        content.push({ type: 'text', text: next });
        for (const [word] of next.matchAll(/\s*\S+\s*?/g)) {
          if (signal.aborted) break;
          emit({ type: 'text-delta', text: word });
        }
      } else {
        for (const [index, { tool, input }] of next.entries()) {
          const call = { name: tool.name, arguments: JSON.stringify(input) };
          content.push({ type: 'tool-call', id: `demo_${request.messages.length}_${index}`, ...call });
          emit({ type: 'call-delta', call: index, ...call });
        }
      }
      const error = { code: 'cancelled', message: 'The request was cancelled.', retryable: false } as const;
      if (signal.aborted) return { type: 'failure', error };
      const usage = { inputTokens: tokensIn(request.messages), outputTokens: tokensIn(content), cost: 0 };
      return { type: 'reply', content, finish: typeof next === 'string' ? 'stop' : 'tool-calls', usage, model: 'demo' };
    },
  };
}

/** An answer in a required form. One text is the answer itself; other values are invented, as those of a call that has to be made. */
function jsonFor(output: JsonSchema, text: string): string {
  // It is asked to confirm an answer that it has given.
  if (isRecord(parsed(text))) return text;
  const properties = isRecord(output['properties']) ? Object.entries(output['properties']) : [];
  const [[name, schema] = []] = properties;
  const isText = isRecord(schema) && schema['type'] === 'string' && Object.keys(schema).every((key) => PLAIN.has(key));
  if (properties.length === 1 && isText) return JSON.stringify({ [name!]: text });
  const call = forcedCall([{ name: 'answer', description: '', parameters: output }], text.slice(0, MAX_READ));
  return JSON.stringify(call?.input ?? {});
}

/** Keywords of a schema that any text fits. */
const PLAIN: ReadonlySet<string> = new Set(['type', 'description', 'title']);

/** The calls that come next, or the answer to everything since the last reply without calls. */
function nextOf(request: ModelRequest): readonly PlannedCall[] | string {
  const { messages, tools, allowedTools, toolChoice, parallel } = request;
  const allowed = tools.filter(({ name }) => allowedTools?.includes(name) ?? true);
  const start = messages.findLastIndex(({ role, content }) => role === 'assistant' && !content.some(isCall)) + 1;
  const open = messages.slice(start);
  const texts = open
    .filter(({ role }) => role === 'user')
    .map(({ content }) => requestIn(textOf(content).slice(0, MAX_READ), allowed));
  const results = resultsIn(open);
  const mustCall = toolChoice !== 'auto' && toolChoice !== 'none';
  const before = messages[start - 1];
  if (before && !mustCall && results.length === 0 && asksToConfirm(texts.at(-1) ?? '')) return textOf(before.content);

  const lastFile = resultsIn(messages.slice(0, start)).findLast(({ file }) => file !== undefined)?.file;
  // The first text is the task. The loop may have written those after it, so they count only where they name a tool.
  const steps = texts.flatMap((text, index) =>
    stepsOf(text, allowed, lastFile).filter((step) => index === 0 || (step.type === 'call' && step.call.byName)),
  );
  const calls: PlannedCall[] = [];
  const answers: string[] = [];
  for (const step of steps) {
    if (step.after && calls.length > 0) break;
    if (step.type === 'unknown') answers.push(`I did not understand "${step.clause}".`);
    else if (step.type === 'answer') answers.push(step.answer);
    else {
      const key = `${step.call.tool.name} ${JSON.stringify(step.call.input)}`;
      const at = results.findIndex(({ call }) => call === key);
      if (at !== -1) answers.push(...results.splice(at, 1).map(({ quote }) => quote));
      else if (toolChoice !== 'none') calls.push(step.call);
      else answers.push(`Not done, because no tool may be called now: ${step.clause}.`);
    }
  }
  const eligible = typeof toolChoice === 'object' ? allowed.filter(({ name }) => name === toolChoice.tool) : allowed;
  const wanted = calls.filter(({ tool }) => eligible.includes(tool));
  const forced = mustCall && wanted.length === 0 ? forcedCall(eligible, texts[0] ?? '') : undefined;
  if (forced !== undefined) wanted.push(forced);
  if (wanted.length > 0) return parallel ? wanted : wanted.slice(0, 1);

  answers.push(...results.map(({ quote }) => quote));
  if (results.length > 0 || steps.some(({ type }) => type !== 'unknown')) return [...answers, `(${WHO})`].join('\n\n');
  return [WHO, ...answers, helpWith(allowed)].join('\n\n');
}

/**
 * What a message asks for. One that is a JSON object has the inputs of an agent: it calls the tool that takes them, or does what
 * their texts say, one after the other.
 */
function requestIn(text: string, tools: readonly ToolSpec[]): string {
  const inputs = text.startsWith('{') ? parsed(text) : undefined;
  if (!isRecord(inputs)) return text;
  const names = Object.keys(inputs);
  const fitting = tools.find(({ parameters: { properties, required } }) => {
    const needed = Array.isArray(required) ? (required as readonly string[]) : [];
    const isTaken = names.every((name) => isRecord(properties) && Object.hasOwn(properties, name));
    return needed.length > 0 && isTaken && needed.every((name) => names.includes(name));
  });
  if (fitting) return `${fitting.name} ${text}`;
  return Object.values(inputs)
    .filter((value) => typeof value === 'string')
    .join(', then ');
}

type Part = Message['content'][number];

/** The result of each call in a part of the history, and the call itself. */
function resultsIn(messages: readonly Message[]): { call: string; file: string | undefined; quote: string }[] {
  const parts = messages.flatMap(({ content }): readonly Part[] => content);
  const inputs = new Map(parts.filter(isCall).map((call) => [call.id, call.arguments]));
  return parts.flatMap((part) => {
    if (part.type !== 'tool-result') return [];
    const json = inputs.get(part.callId) ?? '';
    const input = parsed(json);
    const call = `${part.name} ${json}`;
    const quote = `${call} ${part.isError ? 'failed' : 'returned'}:\n\n${shortened(textOf(part.content).trimEnd())}`;
    return [{ call, file: isRecord(input) ? fileIn(input) : undefined, quote }];
  });
}

function isCall(part: Part): part is Extract<Part, { type: 'tool-call' }> {
  return part.type === 'tool-call';
}

function shortened(text: string): string {
  if (text.length <= MAX_QUOTE) return text || '(nothing)';
  const half = MAX_QUOTE / 2;
  return `${text.slice(0, half)}\n… ${text.length - MAX_QUOTE} characters left out …\n${text.slice(-half)}`;
}

/** Recognises the question of the finish strategy `confirm`. */
function asksToConfirm(text: string): boolean {
  return /\b(?:verify|verified|final answer|restate)\b/i.test(text) && /\b(?:done|completed?)\b/i.test(text);
}

function helpWith(tools: readonly ToolSpec[]): string {
  return `I understand requests such as these, if there is a tool for them:
- list the files
- read README.md
- search the files for "treadle"
- what is 6 * 7?
- list the files, then read README.md, then search it for treadle

The tools here: ${tools.map(({ name }) => name).join(', ') || 'none'}.

For real answers use a real model: set OPENAI_API_KEY and run \`treadle chat --model <name>\`, or name a model in treadle.toml.`;
}

/** An estimate: four characters to a token. */
function tokensIn(content: unknown): number {
  return Math.ceil(JSON.stringify(content).length / 4);
}
