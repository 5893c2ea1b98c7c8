import type { ResultBlock } from '@treadle/core';
import type { WireWaiting } from '../runs/wire.ts';

/** A device whose tools runs may use. */
export interface WireDevice {
  readonly object: 'device';
  readonly name: string;
  /** `unknown`: nothing has been heard of it. */
  readonly status: 'online' | 'draining' | 'offline' | 'unknown';
  /** Since when, in seconds since 1970. */
  readonly since: number | null;
  /** Why it is not online. */
  readonly reason: string | null;
  /** Such as `linux-arm64`. */
  readonly platform: string | null;
  /** The permissions that its tools may need. */
  readonly capabilities: readonly string[];
  readonly tools: readonly WireDeviceTool[];
  /** Packages of tools. */
  readonly skills: readonly { readonly name: string; readonly version: string | null }[];
  /** It speaks only the original protocol, and does not say what it offers. */
  readonly is_plain: boolean;
  /** Of the last ping. */
  readonly latency_ms: number | null;
  readonly load: WireDeviceLoad | null;
  /** Calls at a time, and those that wait. */
  readonly limits: { readonly parallel: number | null; readonly queue: number | null };
  /** Newest first. */
  readonly last_calls: readonly WireDeviceCall[];
}

export interface WireDeviceTool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly effect: 'pure' | 'idempotent' | 'once';
}

export interface WireDeviceLoad {
  readonly running: number | null;
  readonly queued: number | null;
  readonly uptime_s: number | null;
  readonly rss_bytes: number | null;
}

export interface WireDeviceCall {
  readonly request_id: string;
  readonly tool: string;
  /** In seconds since 1970. */
  readonly at: number;
  readonly elapsed_ms: number | null;
  /** `success` or a type of error; null while it runs. */
  readonly result: string | null;
}

export interface WireDeviceList {
  readonly object: 'list';
  readonly data: readonly WireDevice[];
}

/** A call that was started over HTTP. Its run has the id `run_id`. */
export interface WireDeviceCallResult {
  readonly object: 'device.call';
  readonly device: string;
  readonly tool: string;
  readonly run_id: string;
  /** `waiting`: for what `waiting` lists. Send answers to `POST /v1/runs/{run_id}/answers`. */
  readonly status: 'in_progress' | 'waiting' | 'ended';
  readonly waiting: readonly WireWaiting[];
  /** What the tool has returned. Empty until the call has ended. */
  readonly content: readonly ResultBlock[];
  readonly is_error: boolean;
  /** Null: there was no error, or it has no type. */
  readonly error_type: string | null;
}
