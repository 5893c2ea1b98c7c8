import type { Values } from '../workloads/workload.ts';

/** The task of a measuring process, as JSON in its first argument. */
export interface Job {
  readonly contender: string;
  readonly workload: string;
  readonly baseURL: string;
  readonly warmUpMs: number;
  readonly measureMs: number;
  /** Flags for Node, if the process starts a server to be measured. */
  readonly serverFlags: readonly string[];
}

/** The result, as JSON on file descriptor 3, because contenders may write to the standard ones. */
export type Verdict =
  | { readonly type: 'measured'; readonly values: Values }
  | { readonly type: 'wrong'; readonly what: string }
  /** A package of the contender is not installed. */
  | { readonly type: 'absent'; readonly what: string }
  /** It threw an error or took too long. */
  | { readonly type: 'failed'; readonly what: string };
