import type { JournalEntry, Outcome, Question, RunStatus, Touch } from '@treadle/core';
import { request, send } from '../api/client.ts';

/* The runs API, as its documentation describes it. */

export interface RunHead {
  readonly id: string;
  readonly status: RunStatus;
  readonly model: string;
  readonly title: string;
  readonly parent: string | null;
  readonly started_at: number;
  readonly updated_at: number;
  readonly wake_at: number | null;
  readonly entries: number;
  readonly recovered: number;
  /** Only if it was asked for. */
  readonly waiting?: readonly OpenWait[];
}

export interface RunDetails extends RunHead {
  readonly driven: boolean;
  readonly waiting: readonly OpenWait[];
  readonly outcome: Outcome | null;
  readonly turns: number;
  readonly calls: number;
  readonly usage: { readonly input_tokens: number; readonly output_tokens: number; readonly cost: number | null };
}

interface CommonWait {
  readonly effect: string;
  readonly tool: string;
  readonly call_id: string;
  readonly arguments: string;
  readonly expires_at: number | null;
}

export type OpenWait =
  | (CommonWait & {
      readonly type: 'approval';
      readonly digest: string;
      readonly reason?: string;
      readonly rule?: string;
      readonly touches?: readonly Touch[];
      readonly shown?: unknown;
      readonly required: number;
      readonly approvers: readonly string[] | null;
      readonly approved_by: readonly string[];
    })
  | (CommonWait & { readonly type: 'question'; readonly question: Question })
  | (CommonWait & { readonly type: 'client' })
  | (CommonWait & { readonly type: 'parked'; readonly on: string; readonly wake_at: number | null });

export type WaitAnswer =
  | {
      readonly type: 'approval';
      readonly effect: string;
      readonly digest: string;
      readonly approved: boolean;
      readonly reason?: string;
      readonly for_run?: boolean;
    }
  | { readonly type: 'answer'; readonly effect: string; readonly value: unknown }
  | { readonly type: 'result'; readonly effect: string; readonly content: string; readonly is_error?: boolean };

export interface RunPage {
  readonly data: readonly RunHead[];
  readonly has_more: boolean;
  readonly next_cursor: string | null;
}

export interface ForkBody {
  readonly at: number;
  readonly model?: string;
  readonly instructions?: string;
  readonly input?: string;
  readonly results?: Readonly<Record<string, string>>;
  readonly tools?: readonly string[];
  readonly limits?: Readonly<Record<string, number>>;
}

export interface ForkPreview {
  readonly shared: number;
  readonly copied: readonly number[];
  readonly performs: readonly {
    readonly type: string;
    readonly effect: string;
    readonly tool?: string;
    readonly arguments?: string;
  }[];
  readonly waiting: readonly OpenWait[];
}

const pathOf = (id: string, rest = ''): string => `/v1/runs/${encodeURIComponent(id)}${rest}`;

export function listRuns(query: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<RunPage> {
  const given = Object.entries(query).filter(([, value]) => value !== '');
  return request('GET', `/v1/runs?${new URLSearchParams(given).toString()}`, { ...(signal && { signal }) });
}

export const getRun = (id: string, signal?: AbortSignal): Promise<RunDetails> =>
  request('GET', pathOf(id), { ...(signal && { signal }) });

export interface EntryPage {
  readonly data: readonly JournalEntry[];
  readonly has_more: boolean;
}

export const getEntries = (id: string, after: number, signal: AbortSignal): Promise<EntryPage> =>
  request('GET', pathOf(id, `/events?after=${after}&limit=500`), { signal });

export const openEntries = (id: string, after: number, signal: AbortSignal): Promise<Response> =>
  send('GET', pathOf(id, `/events?after=${after}`), { headers: { accept: 'text/event-stream' }, signal });

export const openChanges = (signal: AbortSignal): Promise<Response> =>
  send('GET', '/v1/runs', { headers: { accept: 'text/event-stream' }, signal });

export const answerRun = (id: string, answers: readonly WaitAnswer[]): Promise<RunDetails> =>
  request('POST', pathOf(id, '/answers'), { body: { answers } });

export const cancelRun = (id: string): Promise<RunDetails> => request('POST', pathOf(id, '/cancel'));
export const resumeRun = (id: string): Promise<RunDetails> => request('POST', pathOf(id, '/resume'));
export const forkRun = (id: string, body: ForkBody): Promise<RunDetails> =>
  request('POST', pathOf(id, '/fork'), { body });
export const previewFork = (id: string, body: ForkBody, signal: AbortSignal): Promise<ForkPreview> =>
  request('POST', pathOf(id, '/fork'), { body: { ...body, preview: true }, signal });

/** Downloads the run as a file. A link would not send the key. */
export async function downloadRun(id: string): Promise<void> {
  const answer = await send('GET', pathOf(id, '/export'));
  const address = URL.createObjectURL(await answer.blob());
  const link = document.createElement('a');
  link.href = address;
  link.download = `${id}.jsonl`;
  link.click();
  URL.revokeObjectURL(address);
}

/** A call of another run started it. Forks have an id of their own. */
export function isChildRun({ id, parent }: RunHead): boolean {
  return parent !== null && id.startsWith(`${parent}.`);
}
