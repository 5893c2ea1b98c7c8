import type { Broken, ErrorFacts, Finished, Model, Parked, ToolContext, ToolOutput, Verification } from '@treadle/core';
import type { ExecOps } from '../ops.ts';

/** How an MCP server is reached, and which of its abilities are used. */
export type McpServerOptions = (StdioServer | HttpServer) & McpServerUse;

/** A server that is started as a process. It gets an allow-list of this process's environment, and `env`. */
export interface StdioServer {
  readonly command: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Starts the program, such as in a sandbox, whose environment it gets. Default: this machine. */
  readonly exec?: Pick<ExecOps, 'start'>;
}

/** A server over streamable HTTP, or, if it answers messages with 400, 404 or 405, over HTTP with server-sent events. */
export interface HttpServer {
  readonly url: string;
  /** Sent with every request, such as `authorization`. Never stored or logged. */
  readonly headers?: Readonly<Record<string, string>>;
  /** All requests go through it. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** OAuth, if the server asks for it: the `OAuthClientProvider` or `AuthProvider` of the MCP SDK. */
  readonly auth?: unknown;
}

export interface McpServerUse {
  /** Names the server in errors, prefixes and configuration. */
  readonly name: string;
  /** The names of the tools that are offered. Default: all. */
  readonly tools?: readonly string[];
  /** Put in front of the names of its tools. By default only where a name clashes or is illegal. */
  readonly prefix?: string;
  /** For one call; default one minute. The call ends then, whatever the server does. Waiting for people does not count. */
  readonly timeoutMs?: number;
  /**
   * A call that the server has made a task of is parked after this time, so that the run can be resumed when there is a result.
   * Default: nine tenths of `timeoutMs`. 0: at once, so that the task is found again also after a crash.
   */
  readonly parkAfterMs?: number;
  /** For connecting and listing; default 30 seconds. */
  readonly listTimeoutMs?: number;
  /** Which calls a person has to approve. Default: none besides those that the policy asks about. */
  readonly approval?: 'always' | 'never' | { readonly always?: readonly string[]; readonly never?: readonly string[] };
  /** True: the server's annotations (read-only, idempotent, …) are believed. */
  readonly trustAnnotations?: boolean;
  /** Folders that the server is told about. */
  readonly roots?: readonly string[];
  /** The model for the server's sampling requests. Absent: sampling is refused. */
  readonly sampling?: Model;
}

/** A tool as the server describes it, without control and invisible characters. */
export interface McpTool {
  /** The server's own name for it. */
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly outputSchema?: Readonly<Record<string, unknown>>;
  readonly annotations?: Readonly<Record<string, unknown>>;
  /** Of a server of 2025-11-25: a call can be a task, or has to be one. */
  readonly taskSupport?: 'optional' | 'required';
  /** Of description and schemas. It changes when they do. */
  readonly fingerprint: string;
}

/** What a server tells about itself when it is connected. */
export interface McpServerInfo {
  readonly name: string | undefined;
  readonly version: string | undefined;
  readonly protocolVersion: string;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly instructions: string | undefined;
}

/** A connection that is opened at the first use, and again when it was lost. */
export interface McpServer {
  readonly name: string;
  readonly options: McpServerOptions;
  /** Connects, if that has not happened yet. */
  connect(signal?: AbortSignal): Promise<McpServerInfo>;
  /** All pages, filtered, in a deterministic order. */
  listTools(signal?: AbortSignal): Promise<readonly McpTool[]>;
  /** Tools that the last listing has left out, and why. */
  readonly leftOut: readonly LeftOutTool[];
  /**
   * Calls a tool by the server's own name for it. With a fingerprint, only if the server still describes it in that way. The
   * result is for the loop: `Finished` if child runs belong to it.
   */
  callTool(
    name: string,
    input: unknown,
    context: ToolContext,
    fingerprint?: string,
  ): Promise<ToolOutput | Finished | Broken | Parked>;
  /** What became of a call of the tool, if the server has made a task of it. For `verify` of a tool. */
  verifyCall(name: string, context: ToolContext): Promise<Verification>;
  /** Whether the server makes tasks of calls of the tool. Known when its tools are listed. */
  mayBecomeTask(tool: McpTool): boolean;
  /** The listener is called when the server's list of tools may have changed. Returns a function that removes it. */
  onToolsChanged(listener: () => void): () => void;
  /** Ends the connection and the process. Later uses are rejected. */
  close(): Promise<void>;
}

export interface LeftOutTool {
  readonly name: string;
  readonly reason: string;
}

/** A server that cannot be used. The message says what was wrong and what to do. */
export class McpError extends Error implements ErrorFacts {
  override readonly name = 'McpError';
  readonly code: McpErrorCode;
  readonly errorType: NonNullable<ErrorFacts['errorType']>;
  /** That of the server's answer, if it was not 200. */
  declare readonly httpStatus?: number;
  /** That of the server's JSON-RPC error. */
  declare readonly protocolCode?: number;

  constructor(code: McpErrorCode, message: string, { cause, ...facts }: McpErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.errorType = ERROR_TYPES[code] ?? 'execution_failed';
    Object.assign(this, facts);
  }
}

type McpErrorOptions = Pick<ErrorFacts, 'httpStatus' | 'protocolCode'> & { readonly cause?: unknown };

/**
 * `cannot-start`: there is no such program, or it cannot run. `ended`: its process has ended. `unreachable`: no HTTP answer.
 * `unauthorized`: it wants a sign-in or other credentials. `protocol`: it does not speak MCP, or no version that is known.
 * `refused`: it answered with an error. `too-large`: it sent more than is accepted. `changed`: it
 * describes the tool in another way now. `closed`: `close` was called.
 */
export type McpErrorCode =
  | 'cannot-start'
  | 'ended'
  | 'unreachable'
  | 'unauthorized'
  | 'protocol'
  | 'refused'
  | 'timeout'
  | 'too-large'
  | 'changed'
  | 'aborted'
  | 'closed';

const ERROR_TYPES: Partial<Record<McpErrorCode, McpError['errorType']>> = {
  timeout: 'timeout',
  unauthorized: 'permission_denied',
};

/** For one call. */
export const DEFAULT_TIMEOUT_MS = 60_000;
export const DEFAULT_LIST_TIMEOUT_MS = 30_000;
