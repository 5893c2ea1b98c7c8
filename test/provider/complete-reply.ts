import { createHash } from 'node:crypto';
import type { Finish } from '@treadle/core';
import type { ScriptedReply, ScriptedUsage } from './script.ts';

/** A reply that has all that a provider adds: ids, signatures, a time. */
export interface MadeReply {
  /** Of letters and digits, different for each reply; each form puts its own prefix before it. */
  readonly id: string;
  readonly model: string;
  /** In seconds since 1970. */
  readonly createdAt: number;
  readonly reasoning: string | undefined;
  /** Proof of the reasoning. */
  readonly signature: string;
  readonly text: string | undefined;
  readonly calls: readonly MadeCall[];
  readonly finish: Finish;
  readonly usage: Required<ScriptedUsage>;
}

export interface MadeCall {
  /** As for the reply. */
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

const CREATED_AT = 1_763_200_000;

/** `seed` tells replies apart: the same seed makes the same reply. */
export function makeReply(reply: ScriptedReply, seed: string, model: string): MadeReply {
  const { reasoning, text, calls = [], finish = calls.length > 0 ? 'tool-calls' : 'stop' } = reply;
  return {
    id: digits(seed),
    model,
    createdAt: CREATED_AT,
    reasoning,
    signature: hash(`${seed} ${reasoning}`).toString('base64'),
    text,
    calls: calls.map((call, index) => ({ id: digits(`${seed} ${index}`), ...call })),
    finish,
    usage: { cached: 0, reasoning: 0, input: 20, output: 10, ...reply.usage },
  };
}

/** Cut as models stream: in small pieces, also inside words. A huge text is not cut that small: it would be all frames. */
export function pieces(text: string): string[] {
  const size = Math.max(7, Math.ceil(text.length / 1_000));
  const found: string[] = [];
  for (let at = 0; at < text.length;) {
    const isInside = (text.codePointAt(at + size - 1) ?? 0) > 0xffff;
    const end = at + size + (isInside ? 1 : 0);
    found.push(text.slice(at, end));
    at = end;
  }
  return found;
}

function digits(seed: string): string {
  return hash(seed).toString('hex').slice(0, 24);
}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
