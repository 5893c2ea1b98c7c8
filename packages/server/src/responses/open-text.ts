import type { ItemStatus, MessageItem, OutputText, ReasoningItem } from '../wire/items.ts';
import type { EventsOut } from './events-out.ts';

/** A message or a reasoning item while it comes. Each has one part, in which all of its text is. */
export interface OpenText {
  readonly type: 'message' | 'reasoning';
  readonly id: string;
  /** In the response's output. */
  readonly index: number;
  text: string;
  /** The client was told that the text is whole. */
  isWhole: boolean;
  /** The item as it ended; there when it has. */
  done: MessageItem | ReasoningItem | undefined;
}

/** What is known of an item only when it ends. */
export interface TextEnd {
  readonly phase?: MessageItem['phase'];
  readonly encrypted?: string;
}

const NOTHING: readonly never[] = [];

export function openText(out: EventsOut, item: OpenText): void {
  out.send({
    type: 'response.output_item.added',
    sequence_number: out.next(),
    output_index: item.index,
    item: shownText(item, 'in_progress', false),
  });
}

/** Its part opens with the first piece: reasoning that nobody may read has none. */
export function addText(out: EventsOut, item: OpenText, piece: string): void {
  if (item.text === '') openPart(out, item);
  item.text += piece;
  if (item.type === 'message') {
    out.send({
      type: 'response.output_text.delta',
      sequence_number: out.next(),
      item_id: item.id,
      output_index: item.index,
      content_index: 0,
      delta: piece,
      logprobs: NOTHING,
    });
  } else {
    out.send({
      type: 'response.reasoning_summary_text.delta',
      sequence_number: out.next(),
      item_id: item.id,
      output_index: item.index,
      summary_index: 0,
      delta: piece,
    });
  }
}

/** Tells the text as a whole; what the pieces lacked of it comes as another one. */
export function endText(out: EventsOut, item: OpenText, whole: string = item.text): void {
  if (item.isWhole) return;
  if (whole.length > item.text.length && whole.startsWith(item.text)) addText(out, item, whole.slice(item.text.length));
  item.text = whole;
  item.isWhole = true;
  if (whole === '') return;
  const { id, index } = item;
  if (item.type === 'message') {
    const place = { item_id: id, output_index: index, content_index: 0 };
    out.send({
      type: 'response.output_text.done',
      sequence_number: out.next(),
      ...place,
      text: whole,
      logprobs: NOTHING,
    });
    out.send({ type: 'response.content_part.done', sequence_number: out.next(), ...place, part: outputText(whole) });
  } else {
    const place = { item_id: id, output_index: index, summary_index: 0 };
    out.send({ type: 'response.reasoning_summary_text.done', sequence_number: out.next(), ...place, text: whole });
    const part = { type: 'summary_text', text: whole };
    out.send({ type: 'response.reasoning_summary_part.done', sequence_number: out.next(), ...place, part });
  }
}

export function closeText(out: EventsOut, item: OpenText, status: ItemStatus, end: TextEnd = {}): void {
  if (item.done) return;
  endText(out, item);
  item.done = shownText(item, status, true, end);
  out.send({
    type: 'response.output_item.done',
    sequence_number: out.next(),
    output_index: item.index,
    item: item.done,
  });
}

/** As it goes over the wire; without its parts when it has just opened. */
export function shownText(
  { type, id, text }: OpenText,
  status: ItemStatus,
  withParts: boolean,
  { phase, encrypted }: TextEnd = {},
): MessageItem | ReasoningItem {
  const hasParts = withParts && text !== '';
  if (type === 'message') {
    const content = hasParts ? [outputText(text)] : [];
    return { type, id, status, role: 'assistant', ...(phase && { phase }), content };
  }
  const summary = hasParts ? [{ type: 'summary_text' as const, text }] : [];
  return { type, id, status, summary, ...(encrypted !== undefined && { encrypted_content: encrypted }) };
}

function openPart(out: EventsOut, { type, id, index }: OpenText): void {
  if (type === 'message') {
    out.send({
      type: 'response.content_part.added',
      sequence_number: out.next(),
      item_id: id,
      output_index: index,
      content_index: 0,
      part: outputText(''),
    });
  } else {
    out.send({
      type: 'response.reasoning_summary_part.added',
      sequence_number: out.next(),
      item_id: id,
      output_index: index,
      summary_index: 0,
      part: { type: 'summary_text', text: '' },
    });
  }
}

function outputText(text: string): OutputText {
  return { type: 'output_text', text, annotations: NOTHING, logprobs: NOTHING };
}
