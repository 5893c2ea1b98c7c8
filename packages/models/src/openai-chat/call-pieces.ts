import type { ToolCall } from '@treadle/core';
import { isRecord, parsed, textIn } from '../json.ts';

/** A call, or a piece of one, as the API sends it. No field is certain to be present. */
export interface WireCall {
  readonly index?: number | null;
  readonly id?: string | null;
  readonly function?: WireFunction | null;
  /** Instead of `function`: a call with a text. */
  readonly custom?: { readonly name?: string | null; readonly input?: string | null } | null;
  /** What a host needs back with the call, such as the thought signatures of Gemini. */
  readonly extra_content?: unknown;
}

export interface WireFunction {
  readonly name?: string | null;
  /** JSON text, or on some hosts the object itself. */
  readonly arguments?: unknown;
}

/** A call while its pieces arrive. */
export interface OpenCall {
  /** The position among the calls of the reply, from 0. */
  readonly number: number;
  id: string;
  name: string;
  /** Pieces of the arguments; joined once. */
  pieces: string[];
  /** The pieces are those of a text, not of JSON. */
  isCustom: boolean;
  /** The `extra_content` of the call. */
  extra: unknown;
  /** How far the pieces were searched for the end of the arguments. */
  readonly end: ArgumentsEnd;
}

interface ArgumentsEnd {
  pieces: number;
  depth: number;
  isInString: boolean;
  isEscaped: boolean;
  /** The outermost object has ended. */
  isReached: boolean;
}

export interface OpenCalls {
  readonly all: OpenCall[];
  /** The newest call at each index of the wire, and with each id. */
  readonly byIndex: Map<number, OpenCall>;
  readonly byId: Map<string, OpenCall>;
}

export function startCalls(): OpenCalls {
  return { all: [], byIndex: new Map(), byId: new Map() };
}

/**
 * Reads the calls of one chunk and passes each new call and each piece of arguments to `onPiece`. OpenAI marks the call of a piece by
 * the index. Other hosts send index 0 for every call, or no index, or no id, or the name with each piece. So a piece
 * starts a new call if it cannot belong to the previous one:
 *
 * 1. its id differs;
 * 2. the same chunk already had a piece of that call;
 * 3. it has no id, its name differs, and the previous call has arguments;
 * 4. it has no id but a name, it starts an object, and the previous arguments are complete.
 */
export function readCallPieces(
  calls: OpenCalls,
  chunk: readonly (WireCall | null)[],
  onPiece: (call: OpenCall, piece: string) => void,
): void {
  const seen = chunk.length > 1 ? new Set<OpenCall>() : undefined;
  for (const sent of chunk) {
    if (sent === null || typeof sent !== 'object') continue;
    const isCustom = isRecord(sent.custom);
    const wire = isCustom ? withText(sent) : sent;
    const piece = argumentsPiece(wire.function?.arguments);
    const previous = previousCall(calls, wire);
    const isNew = previous === undefined || seen?.has(previous) || startsNewCall(previous, wire, piece);
    const call = isNew ? startCall(calls, wire) : previous;
    seen?.add(call);
    if (call.id === '' && textIn(wire.id)) calls.byId.set((call.id = textIn(wire.id)), call);
    call.isCustom ||= isCustom;
    call.name = textIn(wire.function?.name) || call.name;
    if (isRecord(wire.extra_content)) call.extra = wire.extra_content;
    if (piece !== '') call.pieces.push(piece);
    if (isNew || (piece !== '' && !call.isCustom)) onPiece(call, call.isCustom ? '' : piece);
  }
}

/** `signer`: the name of the protocol and host. */
export function toolCallOf({ number, id, name, pieces, isCustom, extra }: OpenCall, signer: string): ToolCall {
  const text = pieces.join('');
  const json = isCustom ? JSON.stringify({ input: text }) : text;
  const call: ToolCall = {
    type: 'tool-call',
    id: id || `call_${number}`,
    name,
    arguments: json,
    ...(isCustom && { custom: true }),
  };
  return extra === undefined ? call : { ...call, provider: { protocol: signer, data: extra } };
}

/** A call with a text has the same pieces as one of a function. */
function withText({ custom, ...wire }: WireCall): WireCall {
  return { ...wire, function: { name: custom?.name ?? null, arguments: custom?.input ?? '' } };
}

function previousCall(calls: OpenCalls, { index, id }: WireCall): OpenCall | undefined {
  if (typeof index === 'number') return calls.byIndex.get(index);
  return textIn(id) ? calls.byId.get(textIn(id)) : calls.all.at(-1);
}

function startsNewCall(call: OpenCall, { id, function: fn }: WireCall, piece: string): boolean {
  if (textIn(id)) return call.id !== '' && call.id !== id;
  if (!textIn(fn?.name) || call.pieces.length === 0) return false;
  return fn!.name !== call.name || (piece.startsWith('{') && isComplete(call));
}

/** Parses only once, when the outermost object has ended: what follows cannot make the text JSON. */
function isComplete({ pieces, end }: OpenCall): boolean {
  if (end.isReached) return false;
  for (; end.pieces < pieces.length; end.pieces++) {
    for (const char of pieces[end.pieces]!) {
      if (end.isEscaped) end.isEscaped = false;
      else if (char === '\\') end.isEscaped = true;
      else if (char === '"') end.isInString = !end.isInString;
      else if (!end.isInString && char === '{') end.depth++;
      else if (!end.isInString && char === '}') end.isReached ||= --end.depth === 0;
    }
  }
  return end.isReached && parsed(pieces.join('')) !== undefined;
}

function startCall(calls: OpenCalls, { index }: WireCall): OpenCall {
  const call: OpenCall = {
    number: calls.all.length,
    id: '',
    name: '',
    pieces: [],
    isCustom: false,
    extra: undefined,
    end: { pieces: 0, depth: 0, isInString: false, isEscaped: false, isReached: false },
  };
  calls.all.push(call);
  if (typeof index === 'number') calls.byIndex.set(index, call);
  return call;
}

function argumentsPiece(value: unknown): string {
  if (typeof value === 'string') return value;
  return value == null ? '' : JSON.stringify(value);
}
