import type { Finish } from '@treadle/core';

/** The wire forms that the scripted provider speaks. */
export const FORMS = ['openai-chat', 'openai-responses', 'anthropic', 'ollama'] as const;
export type FormName = (typeof FORMS)[number];

/** What one request is answered with. */
export type Step = ScriptedReply | ScriptedFault;

/** A reply in no provider's words: first the reasoning, then the text, then the calls. Absent is not said. */
export interface ScriptedReply {
  /** Empty: it reasons, but nobody sees what (Anthropic's redacted thinking, Responses without a summary). */
  readonly reasoning?: string;
  readonly text?: string;
  /**
   * The text is said so many times, no faster than it is read, and is never in memory as a whole. Only where a stream
   * does not say its text again at its end: `openai-chat`, `anthropic`, `ollama`.
   */
  readonly repeat?: number;
  readonly calls?: readonly ScriptedCall[];
  /** Default: `tool-calls` where there are calls, otherwise `stop`. */
  readonly finish?: Finish;
  readonly usage?: ScriptedUsage;
}

export interface ScriptedCall {
  readonly name: string;
  /** JSON text, as a model writes it. */
  readonly arguments: string;
}

export interface ScriptedUsage {
  /** All of the input, also what came from the cache. */
  readonly input: number;
  readonly output: number;
  readonly cached?: number;
  readonly reasoning?: number;
}

/**
 * What goes wrong. Where an answer begins well it is that of `reply`, by default some text.
 *
 * - `status`: an error of that status, in the provider's form.
 * - `slow-headers`: nothing comes.
 * - `stall`: half of the answer comes, and then nothing.
 * - `reset`: half of the answer comes, then the connection is reset. `reset-at-once`: before anything comes.
 * - `close`: half of the answer comes, and it ends in the middle of a frame, in order.
 * - `garbage`: a frame in the middle is not what it should be.
 * - `wrong-content-type`: a good answer that calls itself plain text.
 * - `web-page`: somebody else's web page with status 200.
 * - `error-in-200`: an error with status 200. `error-in-stream`: an error after half of a stream.
 * - `huge`: a good answer of 50 MB. `huge-error`: an error of 50 MB with status 500.
 */
export type FaultName =
  | 'status'
  | 'slow-headers'
  | 'stall'
  | 'reset'
  | 'reset-at-once'
  | 'close'
  | 'garbage'
  | 'wrong-content-type'
  | 'web-page'
  | 'error-in-200'
  | 'error-in-stream'
  | 'huge'
  | 'huge-error';

export interface ScriptedFault {
  readonly fault: FaultName;
  readonly status?: number;
  /** In seconds. */
  readonly retryAfter?: number;
  readonly reply?: ScriptedReply;
}

/** A request as it came. */
export interface Seen {
  readonly path: string;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body: unknown;
  /** Why it was refused. */
  readonly refused?: string;
}

export function isFault(step: Step): step is ScriptedFault {
  return 'fault' in step;
}
