import {
  messagesOf,
  outstanding,
  waiting,
  type Call,
  type Effect,
  type Message,
  type Phase,
  type State,
  type ToolCall,
} from '@treadle/core';
import { resultText } from '../run/transcript.ts';
import type { Colours } from '../terminal/colours.ts';
import { outcomeDetail, waitingText, workText } from '../run/outcome-text.ts';
import { plural, durationText, usageText } from '../terminal/quantities.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { contentText } from './event-lines.ts';

type Named = readonly [name: string, text: string];

const NAMES = 11;

/** How a run stands: its phase, what is under way, what it waits for, and the conversation that the model would get. */
export function stateText(
  state: State,
  { colours, width, full }: { readonly colours: Colours; readonly width: number; readonly full: boolean },
): readonly string[] {
  const messages = messagesOf(state.history);
  const lines = ([name, text]: Named, indent = ''): readonly string[] => {
    const margin = indent.length + NAMES;
    const [first, ...rest] = full ? printable(text).split('\n') : [oneLine(text, Math.max(20, width - margin))];
    return [`${indent}${name.padEnd(NAMES)}${first}`, ...rest.map((line) => ' '.repeat(margin) + line)];
  };
  return [
    ...factsOf(state).flatMap((fact) => lines(fact)),
    '',
    colours.bold(`Conversation, ${plural(messages.length, 'message')}`),
    ...messages.flatMap((message) => messageTexts(message, full).flatMap((named) => lines(named, '  '))),
  ];
}

function factsOf(state: State): readonly Named[] {
  const { phase, pending, turn, calls, usage, activeMs } = state;
  const waits = waiting(state);
  const waited = new Set(waits.map(({ effect }) => effect));
  const underWay = outstanding(state).filter(({ id }) => !waited.has(id));
  const slots = phase.type === 'tools' || phase.type === 'judging' ? phase.slots : [];
  const queued = slots.filter(({ type }) => type === 'queued');
  return [
    ['phase', phaseText(state)],
    ...named(
      'under way',
      underWay.map((effect) => effectText(effect)),
    ),
    ...named(
      'waits for',
      waits.map((wait) => `${wait.effect}: ${waitingText(wait)}`),
    ),
    ...named(
      'queued',
      queued.map(({ call }) => `${effectOf(call)}: ${call.name} ${call.arguments}`),
    ),
    ...named(
      'answered',
      slots.flatMap((slot) => (slot.type === 'settled' ? `${effectOf(slot.call)}: ${resultText(slot.result)}` : [])),
    ),
    ...named(
      'added',
      pending.map(({ content }) => contentText(content)),
    ),
    ['used', `${workText({ turns: turn, calls })}; ${usageText(usage)}; ${durationText(activeMs)}`],
  ];
}

function named(name: string, texts: readonly string[]): readonly Named[] {
  return texts.map((text, index) => [index === 0 ? name : '', text]);
}

function phaseText({ phase, turn, closing }: State): string {
  if (phase.type === 'ended') {
    const detail = outcomeDetail(phase.outcome);
    return `ended, ${phase.outcome.type}${detail === undefined ? '' : `: ${detail}`}`;
  }
  return `${PHASES[phase.type]}, turn ${turn}${closing === undefined ? '' : `, the last one (${closing})`}`;
}

const PHASES: Readonly<Record<Exclude<Phase['type'], 'ended'>, string>> = {
  new: 'not begun',
  preparing: 'the turn is prepared',
  model: 'the model is asked',
  compacting: 'the history is compacted',
  judging: 'calls are judged',
  tools: 'tools',
  validating: 'the answer is checked',
};

function effectOf({ turn, index }: Call): string {
  return `t${turn}.tool.${index}`;
}

function effectText(effect: Effect): string {
  return 'call' in effect ? `${effect.id}: ${effect.call.name} ${effect.call.arguments}` : effect.id;
}

function messageTexts(message: Message, full: boolean): readonly Named[] {
  if (message.role === 'tool') {
    return message.content.map((result) => {
      const whole = `${result.isError ? 'error' : 'gave'}: ${contentText(result.content)}`;
      return ['tool', `${result.name} ${full ? whole : resultText(result)}`];
    });
  }
  const calls = message.content.filter((part): part is ToolCall => part.type === 'tool-call');
  const words = contentText(message.content.filter(({ type }) => type !== 'tool-call'));
  return named(message.role, [
    ...(words === '' ? [] : [words]),
    ...calls.map(({ name, arguments: text }) => `calls ${name} ${text}`),
  ]);
}
