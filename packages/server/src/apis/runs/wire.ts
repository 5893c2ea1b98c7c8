import type { Effect, JournalEntry, Outcome, Question, RunStatus, ToolEffect, Touch } from '@treadle/core';

/* The objects of `/v1/runs`. Pages import them as types from `@treadle/server/wire`. Times are in milliseconds since 1970. */

export interface WireRun {
  readonly id: string;
  readonly object: 'run';
  readonly status: RunStatus;
  readonly model: string;
  readonly title: string;
  /** The run that it is a fork or a child of. */
  readonly parent: string | null;
  /** What it belongs to, as its request has named it. The session of a message is its conversation. */
  readonly session: string | null;
  readonly task: string | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly started_at: number;
  readonly updated_at: number;
  readonly wake_at: number | null;
  readonly entries: number;
  /** How often another process took it over from one that had died. */
  readonly recovered: number;
  /** In a list, only if it was asked for. */
  readonly waiting?: readonly WireWaiting[];
}

export interface WireRunDetails extends WireRun {
  /** A process drives it. */
  readonly driven: boolean;
  readonly waiting: readonly WireWaiting[];
  readonly outcome: Outcome | null;
  readonly turns: number;
  readonly calls: number;
  /** The sources of what narrows it, such as `plan`. */
  readonly narrowed_by: readonly string[];
  /** Of the run of an agent: what of its definition has changed since it was started, for people. Null: nothing. */
  readonly definition_change: string | null;
  readonly usage: { readonly input_tokens: number; readonly output_tokens: number; readonly cost: number | null };
}

/** What somebody needs to know to answer. `effect` and `digest` are sent back with the answer. */
export type WireWaiting = {
  readonly effect: string;
  readonly tool: string;
  readonly call_id: string;
  /** The step of a workflow. */
  readonly step?: string;
  readonly arguments: string;
  readonly expires_at: number | null;
} & (
  | {
      readonly type: 'approval';
      readonly digest: string;
      readonly reason?: string;
      readonly rule?: string;
      readonly touches?: readonly Touch[];
      readonly shown?: unknown;
      readonly required: number;
      /** Null: everybody may approve it. */
      readonly approvers: readonly string[] | null;
      readonly approved_by: readonly string[];
    }
  | { readonly type: 'question'; readonly question: Question }
  | { readonly type: 'client' }
  | { readonly type: 'parked'; readonly on: string; readonly wake_at: number | null }
);

/** `signature`: for `verifyAnswer`, and not stored. */
export type WireAnswer = { readonly effect: string; readonly signature?: string | undefined } & (
  | {
      readonly type: 'approval';
      readonly digest: string;
      readonly approved: boolean;
      readonly reason?: string | undefined;
      readonly for_run?: boolean | undefined;
    }
  | { readonly type: 'answer'; readonly value: unknown }
  | {
      readonly type: 'result';
      /** A text, or content blocks as the entries of runs have them. */
      readonly content: string | readonly object[];
      readonly is_error?: boolean | undefined;
      /** More about an error. */
      readonly error_type?: string | undefined;
      readonly exit_code?: number | undefined;
      readonly stderr?: string | undefined;
    }
);

export interface WireEntryPage {
  readonly object: 'list';
  readonly data: readonly JournalEntry[];
  /** `seq` of the last entry. */
  readonly last_seq: number;
  readonly has_more: boolean;
}

/** The body of `POST /v1/runs/{id}/fork`. */
export interface ForkBody {
  /** The last entry that both runs share. Either this or `step`. */
  readonly at?: number | undefined;
  /** Of a workflow: the fork shares what was done before this step began. */
  readonly step?: string | undefined;
  /** Of a workflow: its definition as it is now. */
  readonly definition?: 'current' | undefined;
  readonly model?: string | undefined;
  readonly instructions?: string | undefined;
  /** Texts by the effects of the calls whose results they replace. */
  readonly results?: Readonly<Record<string, string>> | undefined;
  /** The text of the last message of a user up to that entry. */
  readonly input?: string | undefined;
  /** Names of tools that the run has there. */
  readonly tools?: readonly string[] | undefined;
  readonly limits?: ForkLimits | undefined;
  /** Nothing is started or stored. The answer is a `WireForkPreview`. */
  readonly preview?: boolean | undefined;
}

export interface ForkLimits {
  readonly turns?: number | undefined;
  readonly calls?: number | undefined;
  readonly tokens?: number | undefined;
  readonly duration_ms?: number | undefined;
}

export interface WireForkPreview {
  /** The original. */
  readonly id: string;
  readonly object: 'run.fork_preview';
  /** The number of entries at the beginning that both runs share. */
  readonly shared: number;
  /** The `seq` of the later entries of the original whose results are taken over. */
  readonly copied: readonly number[];
  /** What is performed at once. */
  readonly performs: readonly WireEffect[];
  /** What the fork waits for. */
  readonly waiting: readonly WireWaiting[];
}

/** Something that a run performs. */
export interface WireEffect {
  readonly type: Effect['type'];
  readonly effect: string;
  /** Of a call, like what follows. */
  readonly tool?: string;
  readonly arguments?: string;
  readonly tool_effect?: ToolEffect;
}

/** A run as operators see it. It contains no texts of the conversation. */
export interface WireTraceSummary {
  readonly object: 'trace';
  /** As in a `traceparent`. Child runs and forks have that of the run that they come from. */
  readonly trace_id: string;
  readonly run_id: string;
  /** The run that it is a child or a fork of. */
  readonly parent_run_id: string | null;
  readonly task_id: string | null;
  readonly session_id: string | null;
  readonly tenant: string | null;
  readonly agent: string | null;
  readonly model: string;
  readonly status: RunStatus;
  readonly started_at: number;
  readonly ended_at: number | null;
  /** Without pauses, and without the time in which nobody drove it. */
  readonly duration_ms: number;
  readonly turns: number;
  readonly calls: number;
  readonly usage: {
    readonly input_tokens: number;
    readonly output_tokens: number;
    readonly cached_tokens: number;
    readonly reasoning_tokens: number;
    readonly cost: number | null;
  };
  readonly failures: readonly WireTraceFailure[];
}

export interface WireTrace extends WireTraceSummary {
  readonly steps: readonly WireTraceStep[];
  /** Its child runs, at every depth. */
  readonly children: readonly (WireTraceSummary & { readonly steps: readonly WireTraceStep[] })[];
  /** The ids of its forks. */
  readonly forks: readonly string[];
}

/** A turn. */
export interface WireTraceStep {
  readonly turn: number;
  readonly started_at: number;
  readonly ended_at: number | null;
  readonly work: readonly WireTraceWork[];
  readonly actions: readonly WireTraceAction[];
}

/** A model call, or a check: policies, guardrails, validation. */
export interface WireTraceWork {
  readonly effect: string;
  readonly type: 'model' | 'check';
  readonly name: string;
  readonly started_at: number;
  readonly ended_at: number | null;
  readonly problem: 'error' | 'denied' | 'lost' | null;
  /** The model that the provider says it was, and so on: of a model call that was answered. */
  readonly model?: string;
  readonly finish_reason?: string;
  readonly usage?: WireTraceSummary['usage'];
  /** Of a model call that had several. */
  readonly attempts?: readonly {
    readonly model: string;
    readonly duration_ms: number;
    readonly error_code: string | null;
  }[];
}

/** A call. */
export interface WireTraceAction {
  /** `t3.1`: the second call of the third turn. */
  readonly id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly status: 'queued' | 'running' | 'waiting' | 'succeeded' | 'failed' | 'denied';
  readonly started_at: number | null;
  readonly ended_at: number | null;
  readonly ran_ms: number;
  /** For people, clients and devices. */
  readonly waited_ms: number;
  /** How often it began. */
  readonly attempts: number;
  readonly error_type: string | null;
  /** The rule of the policy that decided about it. */
  readonly rule: string | null;
  readonly child_run_id: string | null;
}

export interface WireTraceFailure {
  /** The entry that tells of it. */
  readonly seq: number;
  readonly at: number;
  /** Null: the run itself. */
  readonly effect: string | null;
  readonly tool: string | null;
  readonly category: 'model' | 'tool' | 'policy' | 'limit' | 'validation' | 'infrastructure';
  /** The code that AGENT-33 has for it, such as `F-TMO`. */
  readonly code: string;
  readonly type: string;
  readonly severity: 'low' | 'medium' | 'high' | 'critical';
  readonly retryable: boolean;
  readonly recovered_by: 'retry' | 'fallback' | 'resume' | 'verified' | 'success' | 'compaction' | null;
}
