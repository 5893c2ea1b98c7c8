import { textOf, type Call, type Event, type State, type Verdict } from '@treadle/core';
import { plural } from '../plural.ts';
import { durationText } from '../time-text.ts';
import { usageText } from '../usage-text.ts';
import type { Moment } from './moments.ts';
import { shortId } from './run-id.ts';

/** One thing to tell of a moment. `body` may be long: how much of it is shown is for others to decide. */
export interface Line {
  readonly head: string;
  /** How long, how much. */
  readonly note?: string;
  readonly body?: string;
  readonly tone: 'plain' | 'dim' | 'red' | 'bold';
  /** Only for whoever wants to see everything. */
  readonly detail?: true;
}

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

/** What an event says by itself. `children`: the ids of runs that work for this one. */
export function eventLines(
  { entry: { event }, states, tookMs }: Moment,
  children: ReadonlySet<string>,
): readonly Line[] {
  const took = tookMs === undefined ? [] : [durationText(tookMs)];
  const note = (...parts: readonly string[]): { note?: string } => {
    const all = [...took, ...parts];
    return all.length === 0 ? {} : { note: all.join(', ') };
  };
  switch (event.type) {
    case 'run-started':
      return startLines(event);
    case 'run-forked':
      return [{ head: 'forked', body: changesText(event), tone: 'bold' }];
    case 'turn-prepared': {
      const { problem, decision } = event;
      if (problem !== undefined) return [{ head: 'turn not prepared', ...note(), body: problem, tone: 'red' }];
      return [{ head: 'turn prepared', ...note(), body: changesText(decision), tone: 'dim' }];
    }
    case 'input-added':
      return event.messages.map(({ content }) => ({ head: 'user added', body: textOf(content), tone: 'bold' }));
    case 'tools-changed':
      return [{ head: 'tools now', body: namesOf(event.tools), tone: 'dim' }];
    case 'model-replied':
      return replyLines(event, note(...replyNotes(event)), states?.after.runId, children);
    case 'model-failed':
      return [{ head: 'model failed', ...note(), body: `${event.error.code}: ${event.error.message}`, tone: 'red' }];
    case 'calls-judged':
      return verdictLines(event, states?.before);
    case 'tool-settled':
      return verifiedLines(event, note());
    case 'tool-parked':
      return [{ head: `${event.effect} goes on elsewhere`, ...note(), body: shortId(event.on), tone: 'dim' }];
    case 'approval-given': {
      const by = event.by === undefined ? '' : ` by ${event.by}`;
      const reason = event.approved || event.reason === undefined ? {} : { body: event.reason };
      return [
        { head: `${event.effect} ${event.approved ? 'approved' : 'denied'}${by}`, ...note(), ...reason, tone: 'plain' },
      ];
    }
    case 'client-result-given':
      return [];
    case 'output-checked': {
      const { result } = event;
      if (result.type === 'valid')
        return [{ head: 'answer checked', ...note(), body: 'it has the form that was demanded', tone: 'dim' }];
      return [{ head: 'answer refused', ...note(), body: result.problems.join('; '), tone: 'red' }];
    }
    case 'history-compacted':
      return compactionLines(event, note, states?.before);
    case 'effect-lost': {
      const why = event.cause === 'restart' ? 'it was under way when the run was left' : 'what performed it is gone';
      return [{ head: `${event.effect} lost`, body: why, tone: 'dim' }];
    }
    case 'deadline-passed':
      return [{ head: event.effect === undefined ? 'time limit' : `${event.effect} expired`, ...note(), tone: 'red' }];
    case 'cancel-requested':
      return [{ head: 'cancel requested', tone: 'plain' }];
    default:
      return [{ head: (event satisfies never as Event).type, tone: 'dim' }];
  }
}

function startLines({ model, tools, instructions, input }: Of<'run-started'>): readonly Line[] {
  const task = input.at(-1);
  const earlier = input.slice(0, -1);
  return [
    {
      head: 'started',
      body: `model ${model}; ${tools.length === 0 ? 'no tools' : `tools ${namesOf(tools)}`}`,
      tone: 'dim',
    },
    ...(instructions === undefined
      ? []
      : [{ head: 'instructions', body: instructions, tone: 'dim', detail: true } as const]),
    ...(earlier.length === 0 ? [] : [{ head: plural(earlier.length, 'earlier message'), tone: 'dim' } as const]),
    ...earlier.map(({ role, content }): Line => ({
      head: role,
      body: contentText(content),
      tone: 'dim',
      detail: true,
    })),
    ...(task
      ? [{ head: task.role === 'user' ? 'task' : task.role, body: contentText(task.content), tone: 'bold' } as const]
      : []),
  ];
}

export function contentText(content: Parameters<typeof textOf>[0]): string {
  const others = content.filter(({ type }) => type !== 'text' && type !== 'error').map(({ type }) => `[${type}]`);
  return [textOf(content), ...others].filter((text) => text !== '').join(' ');
}

function replyNotes({ usage, finish, attempts }: Of<'model-replied'>): readonly string[] {
  return [
    usageText(usage),
    ...(finish === 'length' ? ['cut off at its length limit'] : []),
    ...(finish === 'content-filter' ? ['stopped by a content filter'] : []),
    ...(attempts && attempts.length > 1 ? [plural(attempts.length, 'attempt')] : []),
  ];
}

function replyLines(
  { content, model, effect: reply }: Of<'model-replied'>,
  note: { readonly note?: string },
  runId: string | undefined,
  children: ReadonlySet<string>,
): readonly Line[] {
  const words = content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('');
  const calls = content.filter((part) => part.type === 'tool-call');
  const said = words === '' ? (calls.length === 0 ? '(nothing)' : plural(calls.length, 'call')) : words;
  return [
    ...content.flatMap((part): Line[] =>
      part.type === 'reasoning' ? [{ head: 'thought', body: part.text, tone: 'dim' }] : [],
    ),
    { head: 'model', ...note, body: said, tone: 'plain' },
    { head: 'answered by', body: model, tone: 'dim', detail: true },
    ...calls.map((call, index): Line => {
      const effect = `${reply.split('.')[0]}.tool.${index}`;
      const child = `${runId}.${effect}`;
      const mark = children.has(child) ? { note: `a run of its own: ${shortId(child)}` } : {};
      return { head: `  ${effect}`, ...mark, body: `${call.name} ${call.arguments}`, tone: 'plain' };
    }),
  ];
}

function verdictLines({ verdicts }: Of<'calls-judged'>, before: State | undefined): readonly Line[] {
  const slots = before?.phase.type === 'judging' ? before.phase.slots : [];
  const judged = slots.flatMap((slot): Call[] => (slot.type === 'queued' ? [slot.call] : []));
  return judged.map((call, index) => ({
    head: `  ${toolEffect(call)}`,
    body: verdictText(verdicts[index]),
    tone: 'dim',
  }));
}

function verdictText(verdict: Verdict | undefined): string {
  switch (verdict?.type) {
    case 'allow':
      return 'allowed';
    case 'ask':
      return `has to be approved${verdict.reason === undefined ? '' : `: ${verdict.reason}`}`;
    case 'deny':
      return `denied: ${verdict.reason}`;
    default:
      return 'denied, as there was no verdict';
  }
}

/** Only what `verify` says: a result is told as the answer that it is. */
function verifiedLines({ effect, result }: Of<'tool-settled'>, note: { readonly note?: string }): readonly Line[] {
  if (result.type === 'result') return [];
  const body =
    result.type === 'not-done' ? 'it did not take effect, so it runs' : 'nobody can tell whether it took effect';
  return [{ head: effect, ...note, body, tone: 'dim' }];
}

function compactionLines(
  { result }: Of<'history-compacted'>,
  note: (...parts: readonly string[]) => { note?: string },
  before: State | undefined,
): readonly Line[] {
  if (result.type === 'failure') {
    const { code, message } = result.error;
    return [{ head: 'history not compacted', ...note(), body: `${code}: ${message}`, tone: 'red' }];
  }
  const phase = before?.phase;
  const gone = phase?.type === 'compacting' ? `messages ${before!.inputLength + 1} to ${phase.to}` : 'the oldest messages';
  return [
    {
      head: 'history compacted',
      ...note(usageText(result.usage)),
      body: `${gone} gave way to a summary`,
      tone: 'bold',
    },
    { head: '  summary', body: result.summary, tone: 'dim' },
  ];
}

interface Changes {
  readonly model?: string;
  readonly instructions?: string;
  readonly tools?: readonly (string | { readonly name: string })[];
  readonly toolChoice?: unknown;
}

function changesText({ model, instructions, tools, toolChoice }: Changes): string {
  const parts = [
    ...(model === undefined ? [] : [`model ${model}`]),
    ...(tools === undefined ? [] : [tools.length === 0 ? 'no tools' : `tools ${namesOf(tools)}`]),
    ...(toolChoice === undefined
      ? []
      : [`tool choice ${typeof toolChoice === 'string' ? toolChoice : JSON.stringify(toolChoice)}`]),
    ...(instructions === undefined ? [] : [`instructions ${JSON.stringify(instructions)}`]),
  ];
  return parts.join('; ') || 'nothing changed';
}

function namesOf(tools: readonly (string | { readonly name: string })[]): string {
  return tools.map((tool) => (typeof tool === 'string' ? tool : tool.name)).join(', ');
}
function toolEffect({ turn, index }: Call): string {
  return `t${turn}.tool.${index}`;
}
