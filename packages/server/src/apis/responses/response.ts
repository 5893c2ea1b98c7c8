import type { ModelError } from '@treadle/core';
import type { ConversationBefore } from '../../history/conversation.ts';
import type { RunCaller } from '../../engine/tools.ts';
import type { EventWriter } from '../../requests/event-log.ts';
import type { RequestKey } from '../../requests/idempotency.ts';
import type { StoredEnd } from '../../requests/requests.ts';
import type { ResumedRun, RunPlan } from '../../requests/run.ts';
import type { RunCompactions } from './compaction.ts';
import type { ResponseEvent } from './output-items.ts';
import type { ResponseOutputOptions } from './output.ts';
import type { ResponseRequest } from './parse-request.ts';
import type { ReasoningSeal } from './reasoning-seal.ts';
import type { RequestConversations } from '../../history/request-conversation.ts';
import type { ResponseResource } from './wire.ts';

/* The forms in which a response is stored, prepared, driven and finished. */

export interface PreparedResponse {
  readonly id: string;
  /** Its events are stored, so that a client can continue after any of them. */
  readonly isResumable?: boolean;
  /**
   * Rejects if another process has taken over. `signal` aborts when the client disconnects: the response is cancelled,
   * unless it has a key, because the client can ask for it again. A background response goes on. Without `emit` it is
   * returned at once.
   */
  run(listener: ResponseListener, signal: AbortSignal): Promise<FinishedResponse>;
}

export interface ResponseListener extends Pick<ResponseOutputOptions, 'emit' | 'requiresAction'> {
  /** Counts the bytes of events that are made at once. Throws an `ApiError` if they are too many. */
  readonly hold?: (bytes: number) => void;
}

export interface FinishedResponse extends StoredEnd {
  readonly response: ResponseResource;
  /** The model failure that ended it. */
  readonly failure?: ModelError;
  /** The request has a key, so that it can be sent again after an interruption. */
  readonly hasKey?: boolean;
  /** The client did not get the terminal event. It can continue after its last event. */
  readonly isCut?: boolean;
}

export interface ActiveResponse {
  cancel(): void;
  current(): ResponseResource;
  readonly finished: Promise<FinishedResponse>;
}

/** A run of a response that is about to be driven. */
export interface ResponseRun {
  readonly created: ResponseResource;
  /** Set if the client wants `encrypted_content` of reasoning. */
  readonly seal: ReasoningSeal | undefined;
  /** Set if the response is not stored and may have results of the server. */
  readonly carrier?: ReasoningSeal | undefined;
  /** Kept while the response runs, so that other requests that continue the same conversation share its messages. */
  readonly before?: ConversationBefore;
  readonly listener: ResponseListener;
  readonly signal?: AbortSignal;
  /** The id of the stored record. Absent: the response is not stored. */
  readonly record?: string;
  /** The key of the request that waits for the response. */
  readonly key?: RequestKey;
  /** The status that the response has in the store; default `in_progress`. */
  readonly from?: string;
  /** Set if the run has started before. */
  readonly resume?: ResumedRun;
  readonly compaction?: ResponseOutputOptions['compaction'];
  readonly compactions?: ResponseOutputOptions['compactions'];
  readonly lists?: ResponseOutputOptions['lists'];
  readonly begunWith?: ResponseOutputOptions['begunWith'];
  /** The ids of the requests for approvals that it decides about. */
  readonly decided?: readonly string[];
  /** Where the events of a background response are stored. */
  readonly sink?: EventWriter;
  /** The events that were stored before it was resumed. */
  readonly sent?: readonly ResponseEvent[];
}

export interface StoredEnding {
  readonly at: number;
  readonly from: string | undefined;
  readonly releaseKey?: boolean;
}

/** What responses that are created and those that are resumed have in common. */
export interface ResponseDriver extends Pick<RequestConversations, 'requestConversation'> {
  /** Drives a run and builds the response. Releases the lease of the plan at the end. */
  runResponse(plan: RunPlan, run: ResponseRun): ActiveResponse;
  /** For a request that wants `encrypted_content` of reasoning. */
  wantedSeal(
    request: Pick<ResponseRequest, 'include'>,
    caller: Pick<RunCaller, 'tenant'>,
  ): Promise<ReasoningSeal | undefined>;
  /** For a request with `context_management`. `system`: of its conversation. */
  compactionsFor(
    request: Pick<ResponseRequest, 'compactFrom'>,
    system: readonly string[],
    caller: Pick<RunCaller, 'tenant'>,
  ): Promise<RunCompactions | undefined>;
  /** For a response that is not stored and may have results of the server. */
  carrierFor(
    plan: Pick<RunPlan, 'toolset'>,
    request: Pick<ResponseRequest, 'store'>,
    caller: Pick<RunCaller, 'tenant'>,
  ): Promise<ReasoningSeal | undefined>;
  /** Stores the end of a response. Resolves to the response that is stored: another process may have been first. */
  storeEnd(id: string, tenant: string, response: ResponseResource, ending: StoredEnding): Promise<ResponseResource>;
}
