/** A conversation: a chain of responses, each of which continues the one before it. */
export interface ConversationRecord {
  readonly id: string;
  /** The owner. For any other tenant the conversation does not exist. */
  readonly tenant: string;
  /** Empty until it has one. */
  readonly title: string;
  readonly createdAt: number;
  /** When it was last extended. */
  readonly updatedAt: number;
  /** The id of its newest response. Absent: it has none. */
  readonly head?: string;
  /** What its client has attached to it. Absent: nothing. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** What the model is told in this conversation. Absent: nothing. */
  readonly instructions?: string;
}

/**
 * The conversations of a server. The responses of a conversation are deleted with it, unless another conversation has them
 * too. `RequestStore.prune` skips them.
 */
export interface ConversationStore {
  /** Durable when it resolves. Rejects with `run-exists` if a conversation with this id exists. */
  create(record: NewConversation): Promise<void>;
  get(tenant: string, id: string): Promise<ConversationRecord | undefined>;
  /** Those that were extended last come first. */
  list(filter: ConversationFilter): Promise<readonly ConversationRecord[]>;
  /** The ids of its responses, oldest first. Some may not exist: the process died before it created one. */
  responses(id: string): Promise<readonly string[]>;
  /**
   * Adds a response if the newest one is still `extension.head`. Durable when it resolves. So of two processes that extend a
   * conversation at the same time, one does, and the other gets false.
   */
  extend(id: string, extension: Extension): Promise<boolean>;
  /** Sets the text by which a response of the conversation is found. */
  setText(id: string, response: string, text: string): Promise<void>;
  /** False if there is no such conversation, or if its title is not `ifTitle`. */
  rename(tenant: string, id: string, title: string, options?: { readonly ifTitle?: string }): Promise<boolean>;
  /** Replaces the metadata. Durable when it resolves. False if there is no such conversation. */
  setMetadata(tenant: string, id: string, metadata: Readonly<Record<string, string>>): Promise<boolean>;
  /** The same for the instructions. An empty text removes them. */
  setInstructions(tenant: string, id: string, instructions: string): Promise<boolean>;
  /**
   * Deletes the conversation, its stream of events, and its responses with their runs. False if it does not exist. Rejects
   * with `run-driven` while one of the runs has a driver. The conversation is gone, and that is durable, before the responses
   * are deleted one after the other, from the newest one on. If the process dies meanwhile, `prune` deletes the others.
   */
  delete(tenant: string, id: string): Promise<boolean>;
  /**
   * Deletes conversations last extended before `before`, except those with a run in progress. Resolves to their number. Also
   * completes deletions that were interrupted.
   */
  prune(before: number): Promise<number>;
}

export interface NewConversation extends Pick<
  ConversationRecord,
  'id' | 'tenant' | 'title' | 'createdAt' | 'metadata' | 'instructions'
> {
  /**
   * Starts with the responses of another conversation, up to and including this one. If that conversation does not have it
   * any more, with those of any other one of the tenant that does.
   */
  readonly branchOf?: { readonly id: string; readonly upTo: string };
}

export interface ConversationFilter {
  readonly tenant: string;
  /** Words that its title or one of its messages contains, all of them. The last one may be incomplete. */
  readonly search?: string;
  readonly limit: number;
  /** The last conversation of the page before. */
  readonly after?: Pick<ConversationRecord, 'updatedAt' | 'id'>;
}

export interface Extension {
  readonly response: string;
  /** The newest response so far. Absent: there is none. */
  readonly head?: string;
  /** The text by which the response is found. */
  readonly text: string;
  /** The title of the conversation, if it has none. */
  readonly title?: string;
  readonly at: number;
  /**
   * Adds the response after an earlier one, or as the first one if `after` is absent. The responses so far stay together in a
   * new conversation with this id, which is found by its title and the texts after that place. Nothing is added if the
   * conversation does not have `after`.
   */
  readonly branch?: { readonly id: string; readonly after?: string };
}
