/* The objects of `/v1/memory`. Pages import them as types from `@treadle/server/wire`. Times are ISO 8601, in UTC. */

/** Something that a run did, or a note. */
export interface WireMemory {
  readonly object: 'memory';
  readonly id: string;
  readonly event_type: 'tool_call' | 'llm_response' | 'decision' | 'error' | 'note';
  /** As much of it as the `level` of the request says. */
  readonly content: string;
  readonly tags: readonly string[];
  readonly metadata: Readonly<Record<string, string | number | boolean>>;
  readonly timestamp: string;
  /** The run that did it, or wrote the note. Null: a person wrote it. */
  readonly run_id: string | null;
  readonly session_id: string | null;
  readonly agent_name: string | null;
  /** The key that the run acted for. */
  readonly subject: string | null;
  /** Its run had seen content from outside before. */
  readonly outside: boolean;
  /** Of a note. */
  readonly key: string | null;
  readonly scope: WireNoteScope | null;
}

export type WireNoteScope = 'agent' | 'session' | 'user' | 'tenant';

/** A note that is written. */
export interface NoteBody {
  readonly key: string;
  readonly text: string;
  readonly tags?: readonly string[] | null | undefined;
  /** Default `user`. */
  readonly scope?: WireNoteScope | null | undefined;
  readonly session_id?: string | null | undefined;
  readonly agent_name?: string | null | undefined;
  /** Default: the key of the request. */
  readonly subject?: string | null | undefined;
}

export interface WireForgotten {
  readonly object: 'memory.forgotten';
  readonly count: number;
}
