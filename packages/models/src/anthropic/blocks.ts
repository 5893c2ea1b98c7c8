import type { AssistantPart } from '@treadle/core';
import { textIn } from '../json.ts';
import type { Emit } from '../protocol.ts';
import { redactedThought, thought } from './reasoning.ts';
import type { WireBlock, WireDelta } from './wire.ts';

/** A content block while its pieces arrive; they are joined once. */
export type OpenBlock =
  | { readonly type: 'text'; readonly pieces: string[] }
  | { readonly type: 'thinking'; readonly pieces: string[]; signature: string }
  | { readonly type: 'redacted'; readonly data: string }
  | OpenCall
  /** What the provider's own tools do, and whatever is still to be invented. */
  | { readonly type: 'other' };

interface OpenCall {
  readonly type: 'call';
  /** Counts the reply's calls from 0. */
  readonly number: number;
  readonly id: string;
  readonly name: string;
  /** Of the JSON text. */
  readonly pieces: string[];
}

/** `number` is the one that the block gets if it is a call. */
export function openBlock(wire: WireBlock, number: number, emit: Emit): OpenBlock {
  switch (wire.type) {
    case 'text': {
      const block: OpenBlock = { type: 'text', pieces: [] };
      takeDelta(block, { type: 'text_delta', text: wire.text }, emit);
      return block;
    }
    case 'thinking': {
      const block: OpenBlock = { type: 'thinking', pieces: [], signature: textIn(wire.signature) };
      takeDelta(block, { type: 'thinking_delta', thinking: wire.thinking }, emit);
      return block;
    }
    case 'redacted_thinking':
      return { type: 'redacted', data: textIn(wire.data) };
    case 'tool_use': {
      const id = textIn(wire.id) || `call_${number}`;
      const block: OpenBlock = { type: 'call', number, id, name: textIn(wire.name), pieces: [] };
      const given = inputText(wire.input);
      if (given !== '') block.pieces.push(given);
      emit({ type: 'call-delta', call: number, name: block.name, arguments: given });
      return block;
    }
    default:
      return { type: 'other' };
  }
}

export function takeDelta(block: OpenBlock, delta: WireDelta, emit: Emit): void {
  if (delta.type === 'text_delta' && block.type === 'text') {
    const text = textIn(delta.text);
    if (text === '') return;
    block.pieces.push(text);
    emit({ type: 'text-delta', text });
  } else if (delta.type === 'thinking_delta' && block.type === 'thinking') {
    const text = textIn(delta.thinking);
    if (text === '') return;
    block.pieces.push(text);
    emit({ type: 'reasoning-delta', text });
  } else if (delta.type === 'signature_delta' && block.type === 'thinking') {
    block.signature = textIn(delta.signature);
  } else if (delta.type === 'input_json_delta' && block.type === 'call') {
    const piece = textIn(delta.partial_json);
    if (piece === '') return;
    block.pieces.push(piece);
    emit({ type: 'call-delta', call: block.number, name: block.name, arguments: piece });
  }
}

export interface Closing {
  /** The reply ran into a limit of tokens. */
  readonly cut: boolean;
  /** Whose signatures they are. */
  readonly signer: string;
}

/** What a block amounts to; nothing if it is empty or of no concern. */
export function closedBlock(block: OpenBlock, { cut, signer }: Closing): readonly AssistantPart[] {
  switch (block.type) {
    case 'text':
      return block.pieces.length === 0 ? [] : [{ type: 'text', text: block.pieces.join('') }];
    case 'thinking':
      if (block.pieces.length === 0 && block.signature === '') return [];
      return [thought(block.pieces.join(''), block.signature, signer)];
    case 'redacted':
      return block.data === '' ? [] : [redactedThought(block.data, signer)];
    case 'call': {
      const { id, name, pieces } = block;
      // No arguments at all are an empty object, unless a limit kept them from coming.
      return [{ type: 'tool-call', id, name, arguments: pieces.join('') || (cut ? '' : '{}') }];
    }
    case 'other':
      return [];
    default:
      return block satisfies never;
  }
}

/** In a stream the empty object is a placeholder, and in a whole answer it says no more than nothing does. */
function inputText(input: unknown): string {
  if (typeof input === 'string') return input;
  const json = input == null ? '' : JSON.stringify(input);
  return json === '{}' ? '' : json;
}
