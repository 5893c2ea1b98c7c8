import type { ServerList } from '../../engine/executors.ts';
import type { StoredCaller } from '../../requests/run.ts';
import type { ConversationParts, OpenTurn } from '../../history/conversation.ts';
import type { ResponseRequest } from './parse-request.ts';
import type { BegunCall } from './turn-items.ts';

/** The stored form of a request. The store's records contain it, so its fields must not change. */
export interface StoredRequest extends ConversationParts, StoredCaller {
  readonly request: ResponseRequest;
  /** The content of the compaction that the response begins with. */
  readonly compaction?: string;
  /** The tools of other servers that the run was started with. */
  readonly lists?: readonly ServerList[];
  /** What the run begins with, and the calls of which the response has items. */
  readonly open?: OpenTurn;
  readonly begunWith?: readonly (readonly [number, BegunCall])[];
}
