import { signal, type ReadonlySignal } from '@preact/signals';
import type { ServerInfo } from '@treadle/server/wire';
import { request } from './client.ts';

const info = signal<ServerInfo | undefined>(undefined);

export const serverInfo: ReadonlySignal<ServerInfo | undefined> = info;

export async function loadServerInfo(): Promise<ServerInfo> {
  info.value = await request<ServerInfo>('GET', '/v1/server');
  return info.value;
}

/** Whether the key of the page has a scope. Without keys everything is allowed. */
export function hasScope(scope: string): boolean {
  const { key = null } = info.value ?? {};
  return key === null || key.scopes.includes(scope);
}
