import type { OpenTurn } from '../../history/conversation.ts';
import type { ServerList } from '../../engine/executors.ts';
import type { ResponseRequest } from './parse-request.ts';
import type { BegunCall } from './turn-items.ts';

/** The stored form of a request. The store's records contain it, so its fields must not change. */
export interface StoredRequest extends ConversationParts {
  readonly request: ResponseRequest;
  readonly key: string;
  readonly scopes: readonly string[];
  /** The content of the compaction that the response begins with. */
  readonly compaction?: string;
  /** The tools of other servers that the run was started with. */
  readonly lists?: readonly ServerList[];
  /** What the run begins with, and the calls of which the response has items. */
  readonly open?: OpenTurn;
  readonly begunWith?: readonly (readonly [number, BegunCall])[];
}

/** What a conversation has besides its messages, for responses that continue from this one. */
export interface ConversationParts {
  /** The texts of all system and developer messages so far. */
  readonly system: readonly string[];
  /** The labels of other servers whose tools a response of the conversation has reported. */
  readonly reported?: readonly string[];
}
