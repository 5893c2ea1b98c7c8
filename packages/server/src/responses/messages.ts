import type { Message, ResultBlock, ToolResult, UserBlock } from '@treadle/core';
import { badRequest } from '../api-error.ts';
import type { FunctionCallOutputItem, InputItem, InputPart, SaidToModel } from './input-items.ts';
import { fileBlock, imageBlock } from './media.ts';
import { newTurn, resumedTurn, type PausedCall, type Turn } from './rebuilt-turn.ts';

/** What the previous response left. */
export interface Before {
  /** Where calls are open, the last one is the reply that made them. */
  readonly messages: readonly Message[];
  readonly system: readonly string[];
  /** The calls of the paused turn, in order. */
  readonly open?: { readonly calls: readonly PausedCall[] };
}

export interface Conversation {
  readonly messages: Message[];
  /** What system and developer messages say, in order. */
  readonly system: string[];
}

/**
 * The conversation that items stand for, after what the previous response left.
 *
 * 1. All that the model said and called in one turn is one message, and the results of its calls are the next one, in
 *    call order. Ids of ours tell the turns apart; of other items, those that stand together are one turn.
 * 2. Every call has exactly one result, and every result a call before it: else a 400 names the calls.
 * 3. Nothing is dropped but what is empty.
 */
export function conversationFrom(items: readonly InputItem[], before: Before = NOTHING): Conversation {
  const messages = [...before.messages];
  const system = [...before.system];
  let turn: Turn | undefined = before.open && resumedTurn(before.open.calls);
  const close = (): void => {
    if (turn) messages.push(...turn.close());
    turn = undefined;
  };

  for (const [index, item] of items.entries()) {
    const at = `input[${index}]`;
    switch (item.type) {
      case 'message': {
        if (item.role === 'assistant') break;
        if (item.role !== 'user') {
          const text = wordsOf(item);
          if (text !== '') system.push(text);
          continue;
        }
        close();
        const content = item.content.flatMap(userBlocks);
        if (content.length > 0) messages.push({ role: 'user', content });
        continue;
      }
      case 'function_call_output':
        if (turn === undefined) throw orphan(item, at, before);
        turn.answer(item.call_id, resultOf(item), at);
        continue;
      case 'mcp_list_tools':
        continue;
      case 'item_reference':
        throw unknownItem(item.id, at);
      default:
        break;
    }
    if (!turn?.takes(item, at)) {
      close();
      turn = newTurn();
    }
    turn!.add(item, at);
  }
  close();
  return { messages: begun(messages, system), system };
}

const NOTHING: Before = { messages: [], system: [] };

/** What is left when an item stands for one that nobody knows. */
export function unknownItem(id: string, at: string): Error {
  return badRequest(
    `Item with id '${id}' not found. Items of responses that were not stored cannot be referenced: send the item itself.`,
    `${at}.id`,
    'item_not_found',
  );
}

/** Models want somebody to answer: where only a system message speaks, the last of its words are what is asked. */
function begun(messages: Message[], system: string[]): Message[] {
  if (messages.length > 0) return messages;
  const asked = system.pop();
  if (asked === undefined) throw badRequest("'input' is empty. Say something.", 'input', 'empty_input');
  return [{ role: 'user', content: [{ type: 'text', text: asked }] }];
}

function wordsOf({ content }: SaidToModel): string {
  return content.map((part) => (part.type === 'input_text' ? part.text : '')).join('');
}

function userBlocks(part: InputPart): readonly UserBlock[] {
  return part.type === 'input_text' && part.text === '' ? [] : [blockOf(part)];
}

function blockOf(part: InputPart): UserBlock {
  switch (part.type) {
    case 'input_text':
      return { type: 'text', text: part.text };
    case 'input_image':
      return imageBlock(part);
    case 'input_file':
      return fileBlock(part);
    default:
      return part satisfies never;
  }
}

function resultOf({
  output,
  status,
  is_error: isError,
}: FunctionCallOutputItem): Pick<ToolResult, 'content' | 'isError'> {
  const content: readonly ResultBlock[] =
    typeof output === 'string' ? [{ type: 'text', text: output }] : output.map(blockOf);
  return { content, isError: isError ?? status === 'incomplete' };
}

function orphan({ call_id: id }: FunctionCallOutputItem, at: string, before: Before): Error {
  const remedy =
    before === NOTHING
      ? "Send the 'function_call' item before it, or the 'previous_response_id' of the response that made the call."
      : 'No call of the previous response waits for an output: all of its calls are answered.';
  return badRequest(
    `No tool call found for function call output with call_id '${id}'. ${remedy}`,
    `${at}.call_id`,
    'unknown_call',
  );
}
