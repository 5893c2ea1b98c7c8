import type { CallAnswered } from '../journal/items.ts';
import type { JournalEntry } from '../journal/port.ts';
import { walkInSlices } from '../journal/replay.ts';
import type { Event, RunStarted } from '../machine/events.ts';
import { slotFor } from '../machine/effects.ts';
import { questionsOf } from '../machine/questions.ts';
import { textOf, type Message } from '../messages.ts';
import { withoutSecrets } from '../policy/execution-line.ts';
import { agentIn, sharedBy, type AppliedEntry } from '../trace/steps.ts';
import type { Observation, ObservationType } from './port.ts';

/** The labels of a run that is not remembered. */
export const PRIVATE_LABEL = { memory: 'private' } as const;
/** The labels of a run that remembers nothing. */
export const OFF_LABEL = { memory: 'off' } as const;

/** The label with the tags of a run, which are those of its observations. `private` among them is as `PRIVATE_LABEL`. */
const TAGS_LABEL = 'tags';
const PRIVATE_TAG = 'private';
const MAX_TAGS = 20;
const MAX_TAG_CHARS = 200;

/** What the labels of a run say about memory: as `PRIVATE_LABEL`, as `OFF_LABEL`, or undefined. */
export function memoryLabel(labels: RunStarted['labels']): string | undefined {
  const isPrivate = tagsIn(labels).some((tag) => tag.toLowerCase() === PRIVATE_TAG);
  return isPrivate ? PRIVATE_LABEL.memory : labels?.['memory'];
}

function tagsIn(labels: RunStarted['labels']): readonly string[] {
  const tags = (labels?.[TAGS_LABEL] ?? '').split(',').map((tag) => tag.trim());
  return [...new Set(tags)].filter((tag) => tag !== '');
}

/** Whether a run with these labels may use memory. */
export function usesMemory(labels: RunStarted['labels']): boolean {
  const label = memoryLabel(labels);
  return label !== PRIVATE_LABEL.memory && label !== OFF_LABEL.memory;
}

/** The tools that read and write memory. What they say is there already, and must be gone when that is forgotten. */
export const MEMORY_TOOLS = { remember: 'remember', recall: 'recall' } as const;

/** A text of an observation is cut to this length. */
const MAX_CHARS = 8_000;

export interface ObservationReader {
  /** What was observed. Nothing that is private: the journal keeps that. */
  readonly observations: readonly Observation[];
  add(entry: AppliedEntry): void;
}

/**
 * What a run did, as its memory: one observation for each reply of the model, for each call, for each decision of a person and for each
 * failure. A pure function of the entries. Those before `from` only say how the run got there, and those that a fork shares are its
 * original's.
 *
 * Nothing of a run whose labels say `PRIVATE_LABEL` is observed, and nothing of what a run does after it has seen private data.
 */
export function observationReader(from = 0): ObservationReader {
  const observations: Observation[] = [];
  let started: RunStarted | undefined;
  let tags: readonly string[] = [];
  let isShared: (entry: AppliedEntry['entry']) => boolean = () => false;
  /** What people said since the last reply. */
  let asked: string[] = [];

  function observe(step: AppliedEntry, found: readonly Found[]): void {
    const { entry, state } = step;
    if (!started || memoryLabel(started.labels) === PRIVATE_LABEL.memory || state.exposure?.private) return;
    const { session, principal } = started;
    const agent = agentIn(started, state);
    for (const [index, { type, content, metadata = {} }] of found.entries()) {
      observations.push({
        id: `${state.runId}/${entry.seq}${found.length > 1 ? `.${index}` : ''}`,
        type,
        runId: state.runId,
        ...(session !== undefined && { session }),
        ...(agent !== undefined && { agent }),
        ...(principal && { subject: principal.subject, tenant: principal.tenant }),
        content: cut(withoutSecrets(content)),
        tags,
        metadata: { turn: state.turn, ...metadata },
        at: entry.event.at,
        ...(state.exposure?.outside && { outside: true as const }),
      });
    }
  }

  return {
    observations,
    add(step) {
      const { entry, items } = step;
      const { event } = entry;
      if (event.type === 'run-started') {
        started = event;
        tags = tagsIn(event.labels)
          .map((tag) => tag.slice(0, MAX_TAG_CHARS).toWellFormed())
          .slice(0, MAX_TAGS);
        isShared = sharedBy(event);
        asked = saidLast(event.input);
      } else if (event.type === 'input-added') asked.push(...saidLast(event.messages));
      const found: Found[] = [];
      if (event.type === 'model-replied') {
        found.push(replied(event, asked));
        asked = [];
      }
      for (const item of items) if (item.type === 'call-answered') found.push(called(item));
      found.push(...decided(step), ...failed(step));
      if (entry.seq >= from && !isShared(entry)) observe(step, found);
    },
  };
}

/** The observations of a stored run, from an entry on. Undefined if its entries do not replay. */
export async function observationsOf(
  entries: readonly JournalEntry[],
  from = 0,
): Promise<readonly Observation[] | undefined> {
  const reader = observationReader(from);
  const walked = await walkInSlices(entries, reader.add);
  return walked.type === 'replayed' ? reader.observations : undefined;
}

interface Found {
  readonly type: ObservationType;
  readonly content: string;
  readonly metadata?: Observation['metadata'];
}

/** What people said after the last reply. */
function saidLast(messages: readonly Message[]): string[] {
  const last = messages.findLastIndex(({ role }) => role !== 'user');
  return messages
    .slice(last + 1)
    .flatMap((message) => (message.role === 'user' ? [textOf(message.content)] : []))
    .filter((text) => text !== '');
}

function replied(event: Extract<Event, { type: 'model-replied' }>, asked: readonly string[]): Found {
  const said = event.content.flatMap((part) => (part.type === 'text' && part.text !== '' ? [part.text] : []));
  const calls = event.content.flatMap((part) => (part.type === 'tool-call' ? [part.name] : []));
  const content = [
    ...asked.map((text) => `Asked: ${text}`),
    ...(said.length > 0 ? [`${asked.length > 0 ? 'Answered: ' : ''}${said.join('\n')}`] : []),
    ...(calls.length > 0 ? [`Called ${calls.join(', ')}.`] : []),
  ].join('\n');
  return { type: 'llm_response', content, metadata: { model: event.model, finish: event.finish } };
}

function called({ call, index, result }: CallAnswered): Found {
  const { name, arguments: given } = call;
  const said = `${name}(${given === '{}' ? '' : given})\n${textOf(result.content)}`;
  return {
    type: 'tool_call',
    content: Object.hasOwn(MEMORY_TOOLS, name) ? name : said,
    metadata: {
      tool: name,
      index,
      success: !result.isError,
      ...(result.isError && { error_type: result.errorType ?? 'execution_failed' }),
    },
  };
}

/** What people decided, and what they answered. */
function decided({ entry: { event }, before }: AppliedEntry): readonly Found[] {
  if (event.type === 'approval-given') {
    const tool = slotFor(before, event.effect)?.call.name;
    const what = tool === undefined ? 'The answer' : `The call of ${tool}`;
    const reason = event.reason === undefined ? '' : `: ${event.reason}`;
    return [
      {
        type: 'decision',
        content: `${what} was ${event.approved ? 'approved' : 'denied'}${event.by === undefined ? '' : ` by ${event.by}`}${reason}`,
        metadata: { approved: event.approved, ...(tool !== undefined && { tool }) },
      },
    ];
  }
  if (event.type === 'question-answered') {
    const question = questionsOf(slotFor(before, event.effect))[event.question]?.question;
    const asked = question === undefined ? '' : `Asked: ${question.prompt}\n`;
    return [{ type: 'decision', content: `${asked}Answered: ${asText(event.value)}` }];
  }
  return [];
}

function failed({ entry: { event }, items }: AppliedEntry): readonly Found[] {
  if (event.type === 'model-failed') {
    const { code, message } = event.error;
    return [{ type: 'error', content: `The model failed: ${message}`, metadata: { code } }];
  }
  return items.flatMap((item) =>
    item.type === 'run-failed'
      ? [{ type: 'error' as const, content: `The run ended: ${item.message}`, metadata: { code: item.code } }]
      : [],
  );
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function cut(text: string): string {
  return text.length <= MAX_CHARS ? text : `${text.slice(0, MAX_CHARS).toWellFormed()}… (${text.length} characters)`;
}
