import type { Values } from '../workloads/workload.ts';

/** What a measuring process is told, as JSON in its first argument. */
export interface Job {
  readonly contender: string;
  readonly workload: string;
  readonly baseURL: string;
  readonly warmUpMs: number;
  readonly measureMs: number;
  /** For Node, where it starts a server to be measured. */
  readonly serverFlags: readonly string[];
}

/** What it says, as JSON on its fourth file descriptor: contenders may write to the others. */
export type Verdict =
  | { readonly type: 'measured'; readonly values: Values }
  | { readonly type: 'wrong'; readonly what: string }
  /** It cannot be tried here: a package of it is not installed. */
  | { readonly type: 'absent'; readonly what: string }
  /** It broke, or took too long. */
  | { readonly type: 'failed'; readonly what: string };
