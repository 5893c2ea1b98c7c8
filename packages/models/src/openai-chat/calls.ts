import type { ToolCall } from '@treadle/core';
import { parsed, textIn } from '../json.ts';
import type { WireCall } from './wire.ts';

/** A call while its pieces arrive. */
export interface OpenCall {
  /** Counts the reply's calls from 0. */
  readonly number: number;
  id: string;
  name: string;
  /** Of the arguments; joined once. */
  pieces: string[];
}

export interface OpenCalls {
  readonly all: OpenCall[];
  /** The newest call at each of the wire's indexes. */
  readonly byIndex: Map<number, OpenCall>;
}

export function openCalls(): OpenCalls {
  return { all: [], byIndex: new Map() };
}

/**
 * Takes the calls of one chunk and tells of each that is new and of each piece. Which call a piece belongs to is clear
 * on OpenAI (the index); other hosts send index 0 for every call, or no index, or no id, or the name with each piece. So
 * a piece opens a new call where it cannot belong to the one before:
 *
 * 1. its id is another one;
 * 2. the same chunk has had a piece of that call;
 * 3. without an id, its name is another one and the call before has arguments;
 * 4. without an id, it has a name and begins an object, and the arguments before are already whole.
 */
export function takeCalls(
  calls: OpenCalls,
  chunk: readonly (WireCall | null)[],
  tell: (call: OpenCall, piece: string) => void,
): void {
  const seen = chunk.length > 1 ? new Set<OpenCall>() : undefined;
  for (const wire of chunk) {
    if (wire === null || typeof wire !== 'object') continue;
    const piece = argumentsOf(wire.function?.arguments);
    const before = candidateFor(calls, wire);
    const isNew = before === undefined || seen?.has(before) || opensNew(before, wire, piece);
    const call = isNew ? open(calls, wire) : before;
    seen?.add(call);
    call.id ||= textIn(wire.id);
    call.name = textIn(wire.function?.name) || call.name;
    if (piece !== '') call.pieces.push(piece);
    if (piece !== '' || isNew) tell(call, piece);
  }
}

export function closedCall(call: OpenCall): ToolCall {
  return {
    type: 'tool-call',
    id: call.id === '' ? `call_${call.number}` : call.id,
    name: call.name,
    arguments: call.pieces.join(''),
  };
}

function candidateFor(calls: OpenCalls, { index, id }: WireCall): OpenCall | undefined {
  if (typeof index === 'number') return calls.byIndex.get(index);
  return textIn(id) ? calls.all.findLast((call) => call.id === id) : calls.all.at(-1);
}

function opensNew(call: OpenCall, { id, function: fn }: WireCall, piece: string): boolean {
  if (textIn(id)) return call.id !== '' && call.id !== id;
  if (!textIn(fn?.name) || call.pieces.length === 0) return false;
  return fn!.name !== call.name || (piece.startsWith('{') && isWhole(call));
}

/** Only asked where `}` meets `{`, which never happens inside JSON but in a string. */
function isWhole(call: OpenCall): boolean {
  if (!call.pieces.at(-1)!.trimEnd().endsWith('}')) return false;
  const text = call.pieces.join('');
  call.pieces = [text];
  return parsed(text) !== undefined;
}

function open(calls: OpenCalls, { index }: WireCall): OpenCall {
  const call: OpenCall = { number: calls.all.length, id: '', name: '', pieces: [] };
  calls.all.push(call);
  if (typeof index === 'number') calls.byIndex.set(index, call);
  return call;
}

function argumentsOf(value: unknown): string {
  if (typeof value === 'string') return value;
  return value == null ? '' : JSON.stringify(value);
}
