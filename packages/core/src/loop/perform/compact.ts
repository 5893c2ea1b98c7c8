import { textOf, userText, type Message } from '../../messages.ts';
import type { ModelReply, ModelRequest } from '../../model.ts';
import { tokensIn } from '../compaction.ts';
import { wordingOf } from '../wording.ts';
import { ask, ignore } from './model.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

/** Has the oldest turns summarised by a model, as the loop's own request: nothing of it is shown or called. */
export function compact(stage: Stage, { id, history, from, to }: EffectOf<'compact-history'>, done: Done): void {
  const { runId, rules, summariser, clock, state, signal } = stage;
  const { instructions, tools } = state();
  const request: ModelRequest = {
    parallel: rules.parallel,
    settings: {},
    ...(instructions !== undefined && { instructions }),
    messages: [...history.items.slice(0, to), userText(wordingOf(rules).summarise)],
    tools,
    toolChoice: 'none',
    key: `${runId}/${id}`,
  };
  const settle = (reply: ModelReply): void =>
    done({
      type: 'history-compacted',
      at: clock.now(),
      effect: id,
      result: resultOf(reply, history.items.slice(from, to)),
    });
  ask(summariser, request, ignore, signal, settle);
}

type Compacted = Extract<Parameters<Done>[0], { type: 'history-compacted' }>['result'];

function resultOf(reply: ModelReply, replaced: readonly Message[]): Compacted {
  if (reply.type === 'failure') return { type: 'failure', error: reply.error };
  const summary = textOf(reply.content).trim();
  if (summary === '') return useless('The summary was empty.');
  const tokens = replaced.reduce((sum, message) => sum + tokensIn(message), 0);
  if (tokensIn(userText(summary)) > Math.max(tokens, SHORT))
    return useless('The summary was longer than what it should replace.');
  return { type: 'summary', summary, model: reply.model, usage: reply.usage };
}

/** Whatever it replaces, a summary of that many tokens is no burden. */
const SHORT = 200;

function useless(message: string): Compacted {
  return { type: 'failure', error: { code: 'protocol', message, retryable: false } };
}
