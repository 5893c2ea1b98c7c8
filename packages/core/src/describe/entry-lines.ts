import { waiting } from '../machine/effects.ts';
import type { Event, SettledResult } from '../machine/events.ts';
import type { Call } from '../machine/state.ts';
import { textOf } from '../messages.ts';
import type { Verdict } from '../policy/port.ts';
import type { Item } from '../journal/items.ts';
import type { JournalEntry } from '../journal/port.ts';
import { walkInSlices, type JournalStep } from '../journal/replay.ts';
import { lossReader, type Loss } from '../trace/steps.ts';
import { durationText, errorText, outcomeDetail, plural, shortId, usageText, waitingText } from './texts.ts';

/** One entry of a journal, as people see it. */
export interface ShownEntry {
  readonly entry: JournalEntry;
  /** Absent from the first entry on that does not replay. */
  readonly states: Pick<JournalStep, 'before' | 'state'> | undefined;
  /** It is the first entry that does not replay. */
  readonly diverges: boolean;
  readonly items: readonly Item[];
  /** The time since the effect that the entry settles was last issued. */
  readonly took: string | undefined;
  readonly loss?: Loss;
}

/** The entries with their states and items; without states after an entry that does not replay. */
export async function shownEntries(entries: readonly JournalEntry[]): Promise<readonly ShownEntry[]> {
  const steps: JournalStep[] = [];
  await walkInSlices(entries, (step) => void steps.push(step));
  const show = entryReader();
  return entries.map((entry, index) => show(entry, { step: steps[index], isFirst: index === steps.length }));
}

/** How an entry replays. `step`: absent if the entry or one before it does not. `isFirst`: it is the first that does not. */
export interface ReplayedEntry {
  readonly step: JournalStep | undefined;
  readonly isFirst: boolean;
}

/** For those that show a journal while it grows. Call it for each entry, in order. */
export function entryReader(): (entry: JournalEntry, replayed: ReplayedEntry) => ShownEntry {
  /** When each effect was last issued. */
  const issuedAt = new Map<string, number>();
  const lossOf = lossReader();

  return (entry, { step, isFirst }) => {
    const { event, issued } = entry;
    const started = 'effect' in event && event.effect !== undefined ? issuedAt.get(event.effect) : undefined;
    for (const effect of issued) issuedAt.set(effect, event.at);
    const took = started === undefined ? undefined : durationText(event.at - started);
    const shown = { entry, states: step, diverges: isFirst, items: step?.items ?? [], took };
    const loss = lossOf(entry, step?.before);
    return loss === undefined ? shown : { ...shown, loss };
  };
}

/** One line about an entry: `head (note): body`. The body can be long. */
export interface EntryLine {
  readonly head: string;
  readonly body?: string | undefined;
  readonly tone: Tone;
  /** Duration and token usage. */
  readonly note?: string | undefined;
  /** Shown only on request. */
  readonly detail?: true;
}

export type Tone = 'plain' | 'dim' | 'bold' | 'red';

function line(head: string, body?: string, tone: Tone = 'dim', note?: string): EntryLine {
  return { head, body, tone, note };
}

/** Describes the event of an entry and what resulted from it. `children`: the ids of the child runs. */
export function entryLines(step: ShownEntry, children: RunIds = new Set()): readonly EntryLine[] {
  const { entry, states, diverges } = step;
  // A newer version can have other events.
  const known = Object.hasOwn(DESCRIPTIONS, entry.event.type);
  const describe = known ? (DESCRIPTIONS[entry.event.type] as Description<Event>) : ({ type }: Event) => line(type);
  const lines = [describe(entry.event, step, children)].flat();
  if (states) return [...lines, ...resultLines(step)];
  return diverges ? [...lines, line('does not replay', 'this version cannot apply the entry', 'red')] : lines;
}

type RunIds = ReadonlySet<string>;
type Description<E extends Event> = (event: E, step: ShownEntry, children: RunIds) => EntryLine | EntryLine[];

/** What a result changes for the next turns. */
function carriedLines({ handoff, narrow }: Extract<SettledResult, { type: 'result' }>): EntryLine[] {
  return [
    ...(handoff
      ? [line(`handed over to ${handoff.agent}`, `model ${handoff.model}; ${toolsText(handoff.tools)}`)]
      : []),
    ...(narrow ? [line('narrowed to', JSON.stringify(narrow))] : []),
  ];
}

const DESCRIPTIONS: { readonly [Type in Event['type']]: Description<Extract<Event, { type: Type }>> } = {
  'run-started': ({ model, tools, instructions, input, session, task: work, trace, labels = {} }) => {
    const task = input.at(-1);
    const earlier = input.slice(0, -1);
    return [
      line('started', `model ${model}; ${toolsText(tools)}`),
      ...Object.entries({ session, task: work, trace, ...labels }).flatMap(([name, value]) =>
        value === undefined ? [] : [{ ...line(`  ${name}`, value), detail: true } as const],
      ),
      ...(instructions === undefined ? [] : [{ ...line('instructions', instructions), detail: true } as const]),
      ...(earlier.length === 0 ? [] : [line(plural(earlier.length, 'earlier message'))]),
      ...earlier.map(({ role, content }) => ({ ...line(role, contentText(content)), detail: true }) as const),
      ...(task ? [line(task.role === 'user' ? 'task' : task.role, contentText(task.content), 'bold')] : []),
    ];
  },
  'run-forked': (event) => line('forked', changesText(event), 'bold'),
  'turn-prepared': ({ problem, decision }, { took }) =>
    problem === undefined
      ? line('turn prepared', changesText(decision), 'dim', took)
      : line('turn not prepared', problem, 'red', took),
  'input-added': ({ messages }) => messages.map(({ content }) => line('user added', textOf(content), 'bold')),
  'tools-changed': ({ tools, from }) => line(from ? 'tools from the next turn on' : 'tools now', namesOf(tools)),
  'narrowing-lifted': ({ by, source }) =>
    line(source === undefined ? 'narrowing lifted' : `narrowing of ${source} lifted`, by && `by ${by}`, 'bold'),
  'model-replied': ({ content, model, usage, finish, attempts, effect: reply }, { took, states }, children) => {
    const text = content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('');
    const calls = content.filter((part) => part.type === 'tool-call');
    const notes = [
      took,
      usageText(usage),
      finish === 'length' && 'cut off at its length limit',
      finish === 'content-filter' && 'stopped by a content filter',
      attempts && attempts.length > 1 && plural(attempts.length, 'attempt'),
    ];
    return [
      ...content.flatMap((part) => (part.type === 'reasoning' ? line('reasoning', part.text) : [])),
      line('model', text || (calls.length === 0 ? '(empty)' : plural(calls.length, 'call')), 'plain', joined(notes)),
      { ...line('answered by', model), detail: true },
      ...calls.map((call, index) => {
        const effect = `${reply.split('.')[0]}.tool.${index}`;
        const child = `${states?.state.runId}.${effect}`;
        const note = children.has(child) ? `child run ${shortId(child)}` : undefined;
        return line(`  ${effect}`, `${call.name} ${call.arguments}`, 'plain', note);
      }),
    ];
  },
  'model-failed': ({ error }, { took }) => line('model failed', errorText(error), 'red', took),
  'calls-judged': ({ verdicts }, { states }) => {
    const slots = states?.before.phase.type === 'judging' ? states.before.phase.slots : [];
    const judged = slots.filter(({ type }) => type === 'queued');
    return judged.map(({ call }, index) => line(`  ${callEffect(call)}`, verdictText(verdicts[index])));
  },
  'policy-changed': ({ verdicts = {}, limits: { turns, calls } = {} }) => [
    line('policy changed', undefined, 'bold'),
    ...(turns === undefined ? [] : [line('  limit', plural(turns, 'turn'))]),
    ...(calls === undefined ? [] : [line('  limit', plural(calls, 'call'))]),
    ...Object.entries(verdicts).map(([effect, verdict]) => line(`  ${effect}`, verdictText(verdict))),
  ],
  'call-rejudged': ({ effect, verdict }) => [
    line('judged again', 'the sandbox does not promise what the verdict counts on', 'bold'),
    line(`  ${effect}`, verdictText(verdict)),
  ],
  'program-changed': ({ program }) => line('program changed', JSON.stringify(program) ?? 'to a model', 'bold'),
  'tool-settled': ({ effect, result }, { took }) => {
    const { type } = result;
    if (type === 'result') return carriedLines(result); // resultLines describes the rest.
    const body = type === 'not-done' ? 'it did not take effect, so it runs now' : 'whether it took effect is unknown';
    return line(effect, body, 'dim', took);
  },
  'child-started': ({ effect }, { took }) => line(`${effect} started its child run`, undefined, 'dim', took),
  'tool-parked': ({ effect, on, waiting: inside = [], expiresAt }, { took }) => {
    const until = expiresAt !== undefined && `until ${new Date(expiresAt).toISOString()}`;
    const head = inside.length > 0 ? `${effect} waits for a child run` : `${effect} is parked`;
    return line(head, inside.length > 0 ? shortId(on) : on, 'dim', joined([took, until]));
  },
  'questions-asked': ({ effect, questions }, { took }) =>
    questions.map(({ question }) => line(`${effect} asks`, question.prompt, 'bold', took)),
  'question-answered': ({ effect, value, by }, { took }) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return line(`${effect} answered${by === undefined ? '' : ` by ${by}`}`, text, 'plain', took);
  },
  'approval-given': (event, { took }) => {
    const decision = `${event.approved ? 'approved' : 'denied'}${event.by === undefined ? '' : ` by ${event.by}`}`;
    const scope = event.forRun ? ' for the rest of the run' : '';
    return line(`${event.effect} ${decision}${scope}`, event.reason, 'plain', took);
  },
  'client-result-given': () => [],
  'output-checked': ({ result }, { took }) =>
    result.type === 'valid'
      ? line('answer validated', 'it matches the required schema', 'dim', took)
      : line('answer rejected', result.problems.join('; '), 'red', took),
  'history-compacted': ({ result }, { took, states }) => {
    if (result.type === 'failure') return line('history not compacted', errorText(result.error), 'red', took);
    const { phase, inputLength } = states?.before ?? {};
    const range = phase?.type === 'compacting' ? `messages ${inputLength! + 1} to ${phase.to}` : 'the oldest messages';
    const note = joined([took, usageText(result.usage)]);
    return [line('history compacted', `a summary replaces ${range}`, 'bold', note), line('  summary', result.summary)];
  },
  'guardrails-checked': ({ verdicts, effect }, { took }) => {
    const stop = verdicts.find(({ type }) => type === 'stop');
    const what = effect === 't0.guard.0' ? 'input' : 'answer';
    if (stop?.type === 'stop') return line(`${what} stopped`, stop.reason, 'red', took);
    return line(`${what} checked`, `${plural(verdicts.length, 'guardrail')} passed`, 'dim', took);
  },
  'effect-lost': ({ effect, cause }, { loss }) =>
    cause === 'parked'
      ? line(`${effect} is verified`, 'it is parked, and must not run again')
      : loss === 'parked'
        ? line(`${effect} continues`, 'it was parked')
        : loss === 'left-out'
          ? line(`${effect} left out`, 'the fork does not take over its result')
          : loss === 'failed'
            ? line(`${effect} again`, 'the run is resumed')
            : line(`${effect} lost`, `the ${cause === 'restart' ? 'process' : 'device'} stopped before it finished`),
  'resource-opened': ({ name, process: { pid } }) =>
    pid === undefined ? line(`${name} is being opened`) : line(`${name} opened`, `process ${pid}`, 'dim'),
  'resource-closed': ({ name }) => line(`${name} closed`, undefined, 'dim'),
  'budget-escalated': ({ effect, reason }) => line(`${effect} exceeds a budget, so people decide`, reason, 'bold'),
  'budget-refused': ({ effect, reason }) => line(`${effect} refused by the budget`, reason, 'red'),
  'deadline-passed': ({ effect, question }, { took }) => {
    const what = question === undefined ? `${effect} timed out` : `${effect} got no answer in time`;
    return line(effect === undefined ? 'deadline passed' : what, undefined, 'red', took);
  },
  'cancel-requested': () => line('cancel requested', undefined, 'plain'),
};

/** The results of calls, what runs again because an effect was lost, and the status of the run. */
function resultLines({ entry: { event, status }, states, items, took }: ShownEntry): readonly EntryLine[] {
  const { before, state: after } = states!;
  const settles = event.type === 'tool-settled' || event.type === 'client-result-given';
  const usage = event.type === 'tool-settled' && event.result.type === 'result' && event.result.usage;
  const lines = items.flatMap((item: Item): EntryLine | [] => {
    if (item.type === 'call-answered') {
      const effect = settles ? event.effect : `t${before.turn}.tool.${item.index}`;
      const note = joined([settles && took, usage && `it used ${usageText(usage)}`]);
      const { isError, content } = item.result;
      const head = `  ${effect} ${isError ? 'error' : 'returned'}`;
      return line(head, contentText(content), isError ? 'red' : 'plain', note);
    }
    if (event.type !== 'effect-lost') return [];
    if (item.type === 'call-started') return line(`  t${before.turn}.tool.${item.index} runs again`);
    return item.type === 'turn-started' && item.turn === before.turn ? line('  the model is called again') : [];
  });
  if (status === 'paused') {
    const waits = waiting(after);
    return [...lines, ...waits.map((wait) => line('paused', `waits for ${waitingText(wait)}`, 'bold', wait.effect))];
  }
  if (after.phase.type !== 'ended' || before.phase.type === 'ended') return lines;
  const { outcome } = after.phase;
  return [...lines, line(outcome.type, outcomeDetail(outcome), outcome.type === 'failed' ? 'red' : 'bold')];
}

function joined(notes: readonly (string | false | undefined)[]): string | undefined {
  return notes.filter(Boolean).join(', ') || undefined;
}

export function verdictText(verdict: Verdict | undefined): string {
  if (!verdict) return 'denied, because the policy returned no verdict';
  const rule = verdict.rule === undefined ? '' : ` (rule ${verdict.rule})`;
  if (verdict.type === 'allow') return `allowed${rule}`;
  const decision = verdict.type === 'ask' ? 'needs approval' : 'denied';
  return verdict.reason === undefined ? `${decision}${rule}` : `${decision}: ${verdict.reason}${rule}`;
}

/** The text of a message; other parts are named in brackets. */
export function contentText(content: Parameters<typeof textOf>[0]): string {
  const others = content.filter(({ type }) => type !== 'text' && type !== 'error').map(({ type }) => `[${type}]`);
  return [textOf(content), ...others].filter((text) => text !== '').join(' ');
}

export function callEffect({ turn, index }: Call): string {
  return `t${turn}.tool.${index}`;
}

type Tools = readonly (string | { readonly name: string })[];

function changesText(changes: { model?: string; instructions?: string; tools?: Tools; toolChoice?: unknown }): string {
  const { model, instructions, tools, toolChoice } = changes;
  const parts = [
    model !== undefined && `model ${model}`,
    tools && toolsText(tools),
    toolChoice !== undefined &&
      `tool choice ${typeof toolChoice === 'string' ? toolChoice : JSON.stringify(toolChoice)}`,
    instructions !== undefined && `instructions ${JSON.stringify(instructions)}`,
  ];
  return parts.filter(Boolean).join('; ') || 'nothing changed';
}

function toolsText(tools: Tools): string {
  return tools.length === 0 ? 'no tools' : `tools ${namesOf(tools)}`;
}

function namesOf(tools: Tools): string {
  return tools.map((tool) => (typeof tool === 'string' ? tool : tool.name)).join(', ');
}
