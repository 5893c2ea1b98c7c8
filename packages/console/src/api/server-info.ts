import { signal, type ReadonlySignal } from '@preact/signals';
import { request } from './client.ts';

/** What `GET /v1/server` returns: the server as the caller may use it. */
export interface ServerInfo {
  /** The caller. Null on a server without keys. */
  readonly key: { readonly name: string; readonly tenant: string; readonly scopes: readonly string[] } | null;
  readonly models: readonly ServedModel[];
  readonly tools: readonly ServedTool[];
  /** `POST /v1/server/test` is available. */
  readonly can_test_models: boolean;
}

export interface ServedModel {
  readonly id: string;
  /** Used by requests that name no model. */
  readonly is_default: boolean;
  /** Follows fixed rules: no real model is configured. */
  readonly is_demo: boolean;
  readonly accepts: { readonly images: boolean; readonly files: boolean };
}

export interface ServedTool {
  readonly name: string;
  readonly description: string;
  /** Requests that name no tools get it. */
  readonly is_default: boolean;
}

const info = signal<ServerInfo | undefined>(undefined);

export const serverInfo: ReadonlySignal<ServerInfo | undefined> = info;

export async function loadServerInfo(): Promise<ServerInfo> {
  info.value = await request<ServerInfo>('GET', '/v1/server');
  return info.value;
}
