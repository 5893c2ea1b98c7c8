export {
  isSignedIn,
  signIn,
  SignInError,
  signInFetch,
  signOut,
  type SignInBrowser,
  type SignInOptions,
  type SignInServer,
} from './sign-in.ts';
import type { Model, Tool, ToolContext, ToolOutput } from '@treadle/core';

/** How an MCP server is reached, and which of its abilities are used. */
export type McpServerOptions = (StdioServer | HttpServer) & McpServerUse;

/** A server that is started as a process. It gets an allow-list of this process's environment, and `env`. */
export interface StdioServer {
  readonly command: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** A server over streamable HTTP. */
export interface HttpServer {
  readonly url: string;
  /** Sent with every request, such as `authorization`. Never stored or logged. */
  readonly headers?: Readonly<Record<string, string>>;
  /** All requests go through it. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** OAuth, if the server asks for it. */
  readonly auth?: unknown;
}

export interface McpServerUse {
  /** Names the server in errors, prefixes and configuration. */
  readonly name: string;
  /** The names of the tools that are offered. Default: all. */
  readonly tools?: readonly string[];
  /** Put in front of the names of its tools. By default only where a name clashes or is illegal. */
  readonly prefix?: string;
  /** For one call. The call ends then, whatever the server does. */
  readonly timeoutMs?: number;
  /** For connecting and listing. */
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
  /** Of description and schemas. It changes when they do. */
  readonly fingerprint: string;
}

/** A connection that is opened at the first use, and again when it was lost. */
export interface McpServer {
  readonly name: string;
  /** All pages, filtered, in a deterministic order. */
  listTools(signal?: AbortSignal): Promise<readonly McpTool[]>;
  /** Calls a tool by the server's own name for it. */
  callTool(name: string, input: unknown, context: ToolContext): Promise<ToolOutput>;
  /** The listener is called when the server's list of tools has changed. Returns a function that removes it. */
  onToolsChanged(listener: () => void): () => void;
  close(): Promise<void>;
}

export function mcpServer(_options: McpServerOptions): McpServer {
  throw new Error('not built yet');
}

/** The tools of a server for `runLoop`. */
export function mcpTools(_server: McpServer | McpServerOptions, _signal?: AbortSignal): Promise<readonly Tool[]> {
  throw new Error('not built yet');
}
