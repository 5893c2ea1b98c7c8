import type { Capabilities } from '../protocol/capabilities.ts';
import type { Fields } from '../protocol/message.ts';
import type { ResultReport } from '../protocol/report.ts';

/** What executes the tools of a device: this process, or one of its own. */
export interface Runner {
  /** What the device offers. Rejects if it cannot be loaded. */
  describe(): Promise<Described>;
  /** Never rejects: a failure is an outcome. */
  call(call: RunnerCall, onProgress: (progress: unknown) => void): Promise<Outcome>;
  /** An operation on files or programs. Rejects with an error that has the `code` of the system. */
  operate(op: string, args: Fields): Promise<Fields>;
  /** Loads packages of tools again. */
  reload(): Promise<Described>;
  /** Ends everything that runs. */
  close(): Promise<void>;
}

export type Described = Omit<Capabilities, 'agent_id' | 'agent_type' | 'session' | 'ledger' | 'limits'> & {
  /** What was left out, and what people should know; for the log. */
  readonly notices: readonly string[];
};

export interface RunnerCall {
  readonly tool: string;
  readonly parameters: Fields;
  /** The id of the request, for the tool. */
  readonly key: string;
  readonly timeoutMs: number;
  /** Aborts if the call is cancelled. */
  readonly signal: AbortSignal;
}

/** The part of a report that the tool determines. */
export type Outcome = Omit<
  ResultReport,
  'request_id' | 'tool' | 'elapsed_ms' | 'session' | 'timestamp' | 'result_blob'
>;

/** How the tools of a device are set up. Plain JSON: it is sent to the process that runs them. */
export interface ToolSettings {
  /** The working folder, absolute. */
  readonly folder: string;
  /** The permissions that tools may need. Others are not offered. */
  readonly capabilities: readonly string[];
  /** Names and sets of built-in tools, and `packages`. */
  readonly offer: readonly string[];
  /** Folders with packages of tools, absolute. */
  readonly skills: readonly string[];
  /** `auto`, `none`, or the name of an engine. */
  readonly sandboxing: string;
  /** Of a call that says nothing else. */
  readonly timeoutMs: number;
  /** The rules of the device's own policy. */
  readonly rules: Fields;
  /** What becomes of a call that the rules ask about. Nobody is at the device: its orchestrator has asked. */
  readonly onAsk: 'allow' | 'deny';
  /** Offers files and programs as such, as far as the capabilities allow it. */
  readonly ops: boolean;
  /** Files that tools cannot read, such as the ledger and the keys. */
  readonly hide: readonly string[];
}
