import type {
  ForkBody,
  ListPage,
  WireAnswer,
  WireEntryPage,
  WireForkPreview,
  WireRun,
  WireRunDetails,
} from '@treadle/server/wire';
import { request, send } from '../api/client.ts';

const pathOf = (id: string, rest = ''): string => `/v1/runs/${encodeURIComponent(id)}${rest}`;

export function listRuns(query: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<ListPage<WireRun>> {
  const given = Object.entries(query).filter(([, value]) => value !== '');
  return request('GET', `/v1/runs?${new URLSearchParams(given).toString()}`, { ...(signal && { signal }) });
}

export const getRun = (id: string, signal?: AbortSignal): Promise<WireRunDetails> =>
  request('GET', pathOf(id), { ...(signal && { signal }) });

export const getEntries = (id: string, after: number, signal: AbortSignal): Promise<WireEntryPage> =>
  request('GET', pathOf(id, `/events?after=${after}&limit=500`), { signal });

export const openEntries = (id: string, after: number, signal: AbortSignal): Promise<Response> =>
  send('GET', pathOf(id, `/events?after=${after}`), { headers: { accept: 'text/event-stream' }, signal });

export const openChanges = (signal: AbortSignal): Promise<Response> =>
  send('GET', '/v1/runs', { headers: { accept: 'text/event-stream' }, signal });

export const answerRun = (id: string, answers: readonly WireAnswer[]): Promise<WireRunDetails> =>
  request('POST', pathOf(id, '/answers'), { body: { answers } });

export const cancelRun = (id: string): Promise<WireRunDetails> => request('POST', pathOf(id, '/cancel'));
export const resumeRun = (id: string): Promise<WireRunDetails> => request('POST', pathOf(id, '/resume'));
export const forkRun = (id: string, body: ForkBody): Promise<WireRunDetails> =>
  request('POST', pathOf(id, '/fork'), { body });
export const previewFork = (id: string, body: ForkBody, signal: AbortSignal): Promise<WireForkPreview> =>
  request('POST', pathOf(id, '/fork'), { body: { ...body, preview: true } satisfies ForkBody, signal });

export const downloadRun = (id: string): Promise<void> => download(pathOf(id, '/export'), `${id}.jsonl`);
export const downloadTrace = (id: string): Promise<void> =>
  download(`/v1/traces/${encodeURIComponent(id)}`, `${id}.trace.json`);

/** A link would not send the key. */
async function download(path: string, name: string): Promise<void> {
  const answer = await send('GET', path);
  const address = URL.createObjectURL(await answer.blob());
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

/** A call of another run started it. Forks have an id of their own. */
export function isChildRun({ id, parent }: WireRun): boolean {
  return parent !== null && id.startsWith(`${parent}.`);
}
