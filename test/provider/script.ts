import type { Finish } from '@treadle/core';

/** The wire forms of the scripted provider. */
export const FORMS = ['openai-chat', 'openai-responses', 'anthropic', 'google', 'ollama'] as const;
export type FormName = (typeof FORMS)[number];

/** The answer to one request. */
export type Step = ScriptedReply | ScriptedFault;

/** A reply, independent of the provider: first the reasoning, then the text, then the calls. */
export interface ScriptedReply {
  /** If empty, the reasoning is hidden (Anthropic's redacted thinking, Responses without a summary, Gemini without thoughts). */
  readonly reasoning?: string;
  readonly text?: string;
  /** Only for `openai-chat`. */
  readonly refusal?: string;
  /**
   * Sends the text this many times, no faster than the client reads, without holding all of it in memory. Only for forms
   * that do not repeat the text at the end of a stream: `openai-chat`, `anthropic`, `google`, `ollama`.
   */
  readonly repeat?: number;
  readonly calls?: readonly ScriptedCall[];
  /** Default: `tool-calls` if there are calls, else `stop`. */
  readonly finish?: Finish;
  readonly usage?: ScriptedUsage;
}

export interface ScriptedCall {
  readonly name: string;
  /** JSON text, as a model writes it. */
  readonly arguments: string;
}

export interface ScriptedUsage {
  /** All of the input, including cached tokens. */
  readonly input: number;
  readonly output: number;
  readonly cached?: number;
  readonly reasoning?: number;
}

/**
 * A failure of the provider. An answer that starts without an error is that of `reply`, by default some text.
 *
 * - `status`: an error with that status, in the form of the provider.
 * - `slow-headers`: no answer.
 * - `stall`: half of the answer, and then nothing.
 * - `reset`: half of the answer, then the connection is reset. `reset-at-once`: a reset before the answer.
 * - `close`: half of the answer, then the connection is closed properly in the middle of a frame.
 * - `garbage`: an invalid frame in the middle.
 * - `wrong-content-type`: a valid answer with the content type of plain text.
 * - `web-page`: a web page with status 200.
 * - `error-in-200`: an error with status 200. `error-in-stream`: an error after half of a stream.
 * - `huge`: a valid answer of 50 MB, or of 17 MB if it is not streamed. `huge-error`: an error of 10 MB with status 500.
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

/** A received request. */
export interface Seen {
  readonly path: string;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body: unknown;
  /** Why it was rejected. */
  readonly refused?: string;
}

export function isFault(step: Step): step is ScriptedFault {
  return 'fault' in step;
}
