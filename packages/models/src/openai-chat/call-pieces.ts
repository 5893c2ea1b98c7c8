import type { ToolCall, ToolSpec } from '@treadle/core';
import { isJsonObject, isRecord, parsed, textIn } from '../json.ts';

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
  /** The number of characters of the pieces. */
  length: number;
  /** The pieces are those of a text, not of JSON. */
  isCustom: boolean;
  /** The arguments begin as a JSON string. They may be encoded twice. */
  isQuoted: boolean;
  /** The call was passed to `onPiece`. */
  isShown: boolean;
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
  /** The tools of the request. */
  readonly tools: readonly ToolSpec[];
}

export function startCalls(tools: readonly ToolSpec[] = []): OpenCalls {
  return { all: [], byIndex: new Map(), byId: new Map(), tools };
}

type OnPiece = (call: OpenCall, piece: string) => void;

/**
 * Reads the calls of one chunk and passes each new call and each piece of arguments to `onPiece`. OpenAI marks the call of a piece by
 * the index. Other hosts send index 0 for every call, or no index, or no id, or the name with each piece. So a piece
 * starts a new call if it cannot belong to the previous one:
 *
 * 1. its id differs;
 * 2. the same chunk already had a piece of that call;
 * 3. it has no id, its name differs, and the previous call has arguments;
 * 4. it has no id but a name, it starts an object, and the previous arguments are complete.
 *
 * Arguments that a host sends again as a whole are dropped. A call whose name may be incomplete is passed on when its
 * arguments or the next call begin. Arguments that may be encoded twice are not passed on.
 */
export function readCallPieces(calls: OpenCalls, chunk: readonly (WireCall | null)[], onPiece: OnPiece): void {
  const seen = chunk.length > 1 ? new Set<OpenCall>() : undefined;
  for (const sent of chunk) {
    if (sent === null || typeof sent !== 'object') continue;
    const isCustom = isRecord(sent.custom);
    const wire = isCustom ? withText(sent) : sent;
    const sentPiece = argumentsPiece(wire.function?.arguments);
    const known = previousCall(calls, wire);
    const previous = known && seen?.has(known) ? undefined : known;
    const isRepeat = previous !== undefined && repeatsArguments(previous, wire, sentPiece);
    const piece = isRepeat ? '' : sentPiece;
    const isNew = previous === undefined || (!isRepeat && startsNewCall(previous, wire, piece));
    const call = isNew ? startCall(calls, wire, onPiece) : previous;
    seen?.add(call);
    if (call.id === '' && textIn(wire.id)) calls.byId.set((call.id = textIn(wire.id)), call);
    call.isCustom ||= isCustom;
    call.name = joinedName(call, textIn(wire.function?.name), calls.tools);
    if (isRecord(wire.extra_content)) call.extra = wire.extra_content;
    if (piece !== '') addPiece(call, piece);
    showPiece(call, piece, calls.tools, onPiece);
  }
}

function addPiece(call: OpenCall, piece: string): void {
  if (call.length === 0) call.isQuoted = !call.isCustom && piece.trimStart().startsWith('"');
  call.pieces.push(piece);
  call.length += piece.length;
}

function showPiece(call: OpenCall, piece: string, tools: readonly ToolSpec[], onPiece: OnPiece): void {
  const shown = call.isCustom || call.isQuoted ? '' : piece;
  if (call.isShown ? shown === '' : call.length === 0 && mayGrow(call.name, tools)) return;
  call.isShown = true;
  onPiece(call, shown);
}

/** No tool has a longer name. */
const MAX_NAME_LENGTH = 64;

/**
 * A host sends the whole name once, the whole name with each piece, or the name in pieces. Two texts that make no tool's name
 * are joined: no tool may run because of a part of a name.
 */
function joinedName({ name, length }: OpenCall, sent: string, tools: readonly ToolSpec[]): string {
  if (name === '' || sent === '' || name.length > MAX_NAME_LENGTH) return name || sent;
  if (sent === name && (length > 0 || tools.some((tool) => tool.name === name))) return name;
  if (tools.some((tool) => tool.name.startsWith(name + sent))) return name + sent;
  return sent.startsWith(name) ? sent : name + sent;
}

function mayGrow(name: string, tools: readonly ToolSpec[]): boolean {
  return tools.some((tool) => tool.name.length > name.length && tool.name.startsWith(name));
}

/** Whether a call with this name is complete without arguments. */
export function takesNothing(name: string, tools: readonly ToolSpec[]): boolean {
  const properties = tools.find((tool) => tool.name === name)?.parameters['properties'];
  return isJsonObject(properties) && Object.keys(properties).length === 0 && !mayGrow(name, tools);
}

/** White space and escapes make the same arguments at most so many times as long. It keeps reading linear. */
const MAX_RATIO = 8;

/**
 * Whether a piece is the whole arguments of the call once more. They are complete then, so nothing else could follow. A piece
 * with a name but no id may be another call with the same arguments, unless the host sends ids.
 */
function repeatsArguments(call: OpenCall, { id, function: fn }: WireCall, piece: string): boolean {
  if (!piece.startsWith('{') || call.length === 0 || call.length > piece.length * MAX_RATIO || call.isCustom)
    return false;
  const name = textIn(fn?.name) || call.name;
  if (name !== call.name || (textIn(id) ? call.id !== '' && call.id !== id : textIn(fn?.name) && call.id === ''))
    return false;
  if (!call.pieces.at(-1)!.trimEnd().endsWith('}')) return false;
  const before = normalised(joinedPieces(call));
  return before !== undefined && before === normalised(piece);
}

/** The same text for the same object; undefined if the text is not an object. */
function normalised(text: string): string | undefined {
  try {
    const value = JSON.parse(text) as unknown;
    return isJsonObject(value) ? JSON.stringify(value) : undefined;
  } catch {
    return undefined;
  }
}

/** `signer`: the name of the protocol and host. */
export function toolCallOf(open: OpenCall, signer: string): ToolCall {
  const { number, id, name, isCustom, isQuoted, extra } = open;
  const text = joinedPieces(open);
  const json = isCustom ? JSON.stringify({ input: text }) : isQuoted ? decodedOnce(text) : text;
  const call: ToolCall = {
    type: 'tool-call',
    id: id || `call_${number}`,
    name,
    arguments: json,
    ...(isCustom && { custom: true }),
  };
  return extra === undefined ? call : { ...call, provider: { protocol: signer, data: extra } };
}

/** Arguments are always an object, so a JSON string with an object in it was encoded twice. */
function decodedOnce(text: string): string {
  const inner = parsed(text);
  return typeof inner === 'string' && isJsonObject(parsed(inner)) ? inner : text;
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
function isComplete(call: OpenCall): boolean {
  if (call.end.isReached) return false;
  searchEnd(call);
  return call.end.isReached && parsed(call.pieces.join('')) !== undefined;
}

/** Searches the pieces that were not searched yet. */
function searchEnd({ pieces, end }: OpenCall): void {
  for (; end.pieces < pieces.length; end.pieces++) {
    for (const char of pieces[end.pieces]!) {
      if (end.isEscaped) end.isEscaped = false;
      else if (char === '\\') end.isEscaped = true;
      else if (char === '"') end.isInString = !end.isInString;
      else if (!end.isInString && char === '{') end.depth++;
      else if (!end.isInString && char === '}') end.isReached ||= --end.depth === 0;
    }
  }
}

function joinedPieces(call: OpenCall): string {
  if (call.pieces.length > 1) {
    searchEnd(call);
    call.pieces = [call.pieces.join('')];
    call.end.pieces = 1;
  }
  return call.pieces[0] ?? '';
}

function startCall(calls: OpenCalls, { index }: WireCall, onPiece: OnPiece): OpenCall {
  const last = calls.all.at(-1);
  if (last && !last.isShown) {
    last.isShown = true;
    onPiece(last, '');
  }
  const call: OpenCall = {
    number: calls.all.length,
    id: '',
    name: '',
    pieces: [],
    length: 0,
    isCustom: false,
    isQuoted: false,
    isShown: false,
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
