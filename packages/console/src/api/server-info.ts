import { signal, type ReadonlySignal } from '@preact/signals';
import type { ServerInfo } from '@treadle/server/wire';
import { request } from './client.ts';

const info = signal<ServerInfo | undefined>(undefined);

export const serverInfo: ReadonlySignal<ServerInfo | undefined> = info;

export async function loadServerInfo(): Promise<ServerInfo> {
  info.value = await request<ServerInfo>('GET', '/v1/server');
  return info.value;
}
