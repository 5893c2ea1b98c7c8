import { messagesOf, outstanding, waiting, type Event, type Message, type RunSummary, type State } from '@treadle/core';
import { callEffect, contentText, shownEntries } from '@treadle/core/describe';
import { noAgents, openAgents } from '../agents/command-agents.ts';
import type { Command } from '../command-line/command.ts';
import { followUpCommand, locationOf } from '../command-line/flags.ts';
import type { CommandContext } from '../config/context.ts';
import { outcomeDetail, waitingText, workText } from '../run/outcome-text.ts';
import { answerFlags } from '../run/run-and-report.ts';
import { resultText } from '../run/transcript.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { ageText, durationText, plural, timestampText, usageText } from '../terminal/quantities.ts';
import { timeline, type TextLayout } from './entry-lines.ts';
import { stateAfter } from './journal.ts';
import { foreignRunReason, hasDefinition } from './resume.ts';
import { displayStatus, isChild, readRun, runsCommand, shortId } from './store-access.ts';
import type { DisplayStatus, RunsRequest, StoredRun } from './store-access.ts';

export const showCommand: Command = runsCommand('show ID', {
  summary: 'Show a run as a timeline, or its state after one entry',
  flags: {
    at: { type: 'count', value: 'N', min: 0, help: 'Show the state after entry N: phase, effects, conversation' },
    full: { type: 'switch', help: 'Show whole texts, instructions and earlier messages; default: one line each' },
    json: { type: 'switch', help: 'Print JSON: the summary and every entry; with --at the state' },
  },
  details: 'The numbers on the left are the entry numbers that --at and "treadle runs fork --at" take.',
  examples: ['treadle runs show 1a2b', 'treadle runs show 1a2b --at 3', 'treadle runs show 1a2b --full'],
  async run(request) {
    const { store, values, print, colours, io } = request;
    const run = await readRun(store, request.args[0]!);
    const layout = { colours, width: io.stdout.columns ?? 120, full: values.full === true };
    if (values.at !== undefined) {
      const state = await stateAfter(run, values.at);
      const { event, seq } = run.entries[values.at]!;
      if (values.json) return print(JSON.stringify(stateJson(state, seq), null, 2));
      const last = run.entries.length - 1;
      print(`${shortId(state.runId)} after entry ${seq} of 0 to ${last}, ${timestampText(event.at)}`, '');
      return print(stateText(event, state, layout));
    }
    const steps = await shownEntries(run.entries);
    const shown: ShownRun = {
      run,
      state: steps.at(-1)?.states?.state,
      status: await displayStatus(store, run.summary),
      related: await store.list({ parent: run.summary.runId, limit: Infinity }),
    };
    if (values.json) return print(JSON.stringify(runJson(shown), null, 2));
    const children = new Set(shown.related.filter(isChild).map(({ runId }) => runId));
    print(await heading(shown, request), '', timeline(steps, children, layout), nextStep(shown, request));
  },
});

interface ShownRun {
  readonly run: StoredRun;
  /** The last state; absent if the journal does not replay. */
  readonly state: State | undefined;
  readonly status: DisplayStatus;
  /** Children and forks. */
  readonly related: readonly RunSummary[];
}

async function heading({ run, state, status, related }: ShownRun, request: RunsRequest): Promise<readonly string[]> {
  const { store, colours, context } = request;
  const { runId, model, startedAt, updatedAt, recovered } = run.summary;
  const rows: [name: string, value: string][] = [
    ['model', state?.model ?? model],
    ['started', `${timestampText(startedAt)}, ${ageText(Date.now() - startedAt)} ago`],
  ];
  if (state) {
    const cost = state.usage.cost === undefined ? ', unknown cost' : '';
    rows.push(['used', `${workText({ turns: state.turn, calls: state.calls })}; ${usageText(state.usage)}${cost}`]);
    rows.push(['active', `${durationText(state.activeMs)} of ${durationText(Math.max(0, updatedAt - startedAt))}`]);
  }
  if (recovered) {
    const times = recovered.times === 1 ? 'once' : `${recovered.times} times, the last time`;
    rows.push(['recovered', `${times} at ${timestampText(recovered.at)}, because its process had died`]);
  }
  const first = run.entries[0]?.event;
  const change = await changedAgent(run, context);
  if (change !== undefined) rows.push(['agent', change]);
  const origin = first?.type === 'run-started' ? first.parent : undefined;
  if (origin?.seq !== undefined) rows.push(['fork of', `${shortId(origin.runId)}, after entry ${origin.seq}`]);
  else if (origin) rows.push(['child of', `${shortId(origin.runId)}, call ${origin.effect}`]);
  for (const one of related) {
    rows.push([isChild(one) ? 'child' : 'fork', `${shortId(one.runId)}, ${await displayStatus(store, one)}`]);
  }
  return [
    `${colours.bold(runId)}  ${status}`,
    ...rows.map(([name, value]) => `  ${colours.dim(name.padEnd(9))}  ${value}`),
  ];
}

/** What of the definition of the agent of a run has changed since it was started; undefined: nothing. */
async function changedAgent({ entries: [first] }: StoredRun, context: CommandContext): Promise<string | undefined> {
  if (first?.event.type !== 'run-started' || first.event.definition === undefined) return undefined;
  const { agentChange, recordedAgent } = await import('@treadle/core/named-agents');
  const pinned = recordedAgent(first.event.definition);
  return pinned && agentChange(pinned, (await openAgents(context)) ?? (await noAgents()));
}

/** How to resume the run, if that is possible. */
function nextStep({ run, state, status }: ShownRun, { values, context }: RunsRequest): readonly string[] {
  const canRetry = state?.phase.type === 'ended' && state.phase.effect !== undefined;
  if (isChild(run.summary) || !(status === 'interrupted' || status === 'paused' || canRetry)) return [];
  const foreign = state && foreignRunReason(state, context.loaded.config, hasDefinition(run));
  if (foreign !== undefined) return ['', `This run ${foreign}. Resume it from that program.`];
  const words = ['runs', 'resume', shortId(run.summary.runId), ...(state ? waiting(state).flatMap(answerFlags) : [])];
  return ['', `Resume with: ${followUpCommand(words, locationOf(values))}`];
}

function runJson({ run, state, status, related }: ShownRun): object {
  return {
    ...run.summary,
    standing: status,
    ...(state && {
      ...(state.phase.type === 'ended' && { outcome: state.phase.outcome }),
      waiting: waiting(state),
      usage: state.usage,
      turns: state.turn,
      calls: state.calls,
      durationMs: state.activeMs,
    }),
    children: related.filter(isChild).map(({ runId }) => runId),
    forks: related.filter((one) => !isChild(one)).map(({ runId }) => runId),
    entries: run.entries,
  };
}

function stateJson(state: State, seq: number): object {
  const { history, ...rest } = state;
  const effects = outstanding(state).map(({ id, type }) => ({ id, type }));
  return { seq, ...rest, outstanding: effects, waiting: waiting(state), messages: messagesOf(history) };
}

type NamedText = readonly [name: string, text: string];

const NAME_WIDTH = 13;

/** The last event, the phase, what is outstanding, what the run waits for, and the messages that the model would get. */
function stateText(event: Event, state: State, { colours, width, full }: TextLayout): readonly string[] {
  const messages = messagesOf(state.history);
  const lines = ([name, text]: NamedText, indent: string): readonly string[] => {
    const margin = indent.length + NAME_WIDTH;
    const [first, ...rest] = full ? printable(text).split('\n') : [oneLine(text, Math.max(20, width - margin))];
    return [`${indent}${name.padEnd(NAME_WIDTH)}${first}`, ...rest.map((more) => ' '.repeat(margin) + more)];
  };
  return [
    ...stateFacts(state, event).flatMap((fact) => lines(fact, '')),
    '',
    colours.bold(`Conversation, ${plural(messages.length, 'message')}`),
    ...messages.flatMap((message) => messageTexts(message, full)).flatMap((text) => lines(text, '  ')),
  ];
}

function stateFacts(state: State, event: Event): readonly NamedText[] {
  const { phase, pending, turn, calls, usage, activeMs } = state;
  const effectId = 'effect' in event && event.effect !== undefined ? ` ${event.effect}` : '';
  const waits = waiting(state);
  const effects = outstanding(state).filter(({ id }) => !waits.some(({ effect }) => effect === id));
  const slots = phase.type === 'tools' || phase.type === 'judging' ? phase.slots : [];
  const settled = slots.filter((slot) => slot.type === 'settled');
  const callText = (id: string, { name, arguments: text }: { name: string; arguments: string }): string =>
    `${id}: ${name} ${text}`;
  const facts: Readonly<Record<string, readonly string[]>> = {
    event: [`${event.type}${effectId}`],
    phase: [phaseText(state)],
    outstanding: effects.map((effect) => ('call' in effect ? callText(effect.id, effect.call) : effect.id)),
    'waits for': waits.map((wait) => `${wait.effect}: ${waitingText(wait)}`),
    queued: slots.flatMap(({ type, call }) => (type === 'queued' ? callText(callEffect(call), call) : [])),
    answered: settled.map(({ call, result }) => `${callEffect(call)}: ${resultText(result)}`),
    added: pending.map(({ content }) => contentText(content)),
    used: [`${workText({ turns: turn, calls })}; ${usageText(usage)}; ${durationText(activeMs)}`],
  };
  return Object.entries(facts).flatMap(([name, texts]) => named(name, texts));
}

/** Puts the name before the first text only. */
function named(name: string, texts: readonly string[]): readonly NamedText[] {
  return texts.map((text, index) => [index === 0 ? name : '', text]);
}

function phaseText({ phase, turn, closing }: State): string {
  if (phase.type === 'ended')
    return ['ended', phase.outcome.type, outcomeDetail(phase.outcome)].filter(Boolean).join(', ');
  return `${phase.type}, turn ${turn}${closing === undefined ? '' : `, closing turn (${closing})`}`;
}

function messageTexts(message: Message, full: boolean): readonly NamedText[] {
  if (message.role === 'tool') {
    return message.content.map((result) => {
      const whole = `${result.isError ? 'error' : 'returned'}: ${contentText(result.content)}`;
      return ['tool', `${result.name} ${full ? whole : resultText(result)}`];
    });
  }
  const text = contentText(message.content.filter(({ type }) => type !== 'tool-call'));
  const calls = message.content.filter((part) => part.type === 'tool-call');
  const texts = [text, ...calls.map((call) => `calls ${call.name} ${call.arguments}`)];
  return named(message.role, texts.filter(Boolean));
}
