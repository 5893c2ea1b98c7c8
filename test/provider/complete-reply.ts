import { createHash } from 'node:crypto';
import type { Finish } from '@treadle/core';
import type { ScriptedReply, ScriptedUsage } from './script.ts';

/** A scripted reply with all that a provider adds: ids, a signature, a time. */
export interface CompleteReply {
  /** Hexadecimal digits, different for each reply. Each form adds its own prefix. */
  readonly id: string;
  readonly model: string;
  /** In seconds since 1970. */
  readonly createdAt: number;
  readonly reasoning: string | undefined;
  /** The signature of the reasoning. */
  readonly signature: string;
  readonly text: string | undefined;
  readonly refusal: string | undefined;
  readonly calls: readonly CompleteCall[];
  readonly finish: Finish;
  readonly usage: Required<ScriptedUsage>;
}

export interface CompleteCall {
  /** Like the id of the reply. */
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

const CREATED_AT = 1_763_200_000;

/** The same seed gives the same ids and signature. */
export function completeReply(reply: ScriptedReply, seed: string, model: string): CompleteReply {
  const { reasoning, text, refusal, calls = [], finish = calls.length > 0 ? 'tool-calls' : 'stop' } = reply;
  return {
    id: hexOf(seed),
    model,
    createdAt: CREATED_AT,
    reasoning,
    signature: hash(`${seed} ${reasoning}`).toString('base64'),
    text,
    refusal,
    calls: calls.map((call, index) => ({ id: hexOf(`${seed} ${index}`), ...call })),
    finish,
    usage: { cached: 0, reasoning: 0, input: 20, output: 10, ...reply.usage },
  };
}

/** Splits a text as models stream it: into small pieces, also inside words. Huge texts get at most 1,000 pieces. */
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

function hexOf(seed: string): string {
  return hash(seed).toString('hex').slice(0, 24);
}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
