import { userText, type Message, type ResultBlock } from '../messages.ts';
import { append, emptyHistory } from './history.ts';
import type { State } from './state.ts';
import { wordingOf } from './wording.ts';

/**
 * Where the part of the history that may give way to a summary ends: whole turns after the task, before the newest ones.
 * Absent when there is nothing to gain.
 */
export function cutOf({ history, given, rules }: State): number | undefined {
  let turns = rules.compaction?.keepTurns ?? 0;
  let to = history.length;
  for (let index = history.length - 1; index > given && turns > 0; index--) {
    if (history.items[index]!.role !== 'assistant') continue;
    to = index;
    turns--;
  }
  return turns === 0 && to - given >= 2 ? to : undefined;
}

/** Whether the conversation has grown to where the rules want it shorter before the model is asked again. */
export function isCrowded({ rules, contextTokens }: State): boolean {
  const tokens = rules.compaction?.tokens;
  return tokens !== undefined && contextTokens >= tokens;
}

/** The history with a summary in the place of its oldest turns. What it replaces stays in the journal. */
export function compacted(state: State, to: number, summary: string): State {
  const { items, length } = state.history;
  const kept = [
    ...items.slice(0, state.given),
    userText(wordingOf(state.rules).summary(summary)),
    ...items.slice(to, length),
  ];
  const contextTokens = kept.reduce((sum, message) => sum + tokensIn(message), 0);
  return { ...state, history: kept.reduce<State['history']>(append, emptyHistory()), contextTokens };
}

/** A rough count: four characters a token, and something for a picture or a file. */
export function tokensIn({ content }: Message): number {
  let characters = 0;
  for (let i = 0; i < content.length; i++) {
    const part = content[i]!;
    if ('text' in part) characters += part.text.length;
    else if (part.type === 'tool-call') characters += part.name.length + part.arguments.length;
    else if (part.type === 'tool-result') {
      for (let j = 0; j < part.content.length; j++) characters += charactersIn(part.content[j]!);
    } else characters += PICTURE;
  }
  return Math.ceil(characters / 4);
}

function charactersIn(block: ResultBlock): number {
  return 'text' in block ? block.text.length : PICTURE;
}

const PICTURE = 4_000;
