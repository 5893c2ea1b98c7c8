import { signal, type ReadonlySignal } from '@preact/signals';
import { createParser } from 'eventsource-parser';

/** The API of the server that the page comes from. */

/** The server has refused a request. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
  readonly status: number;
  readonly code: string | undefined;

  constructor(status: number, message: string, code?: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The server could not be reached. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
}

const KEY = 'treadle.key';
/** The key of the user, in the memory of this tab only. */
const storedKey = signal(sessionStorage.getItem(KEY));
const refused = signal<string | undefined>(undefined);
const lost = signal(false);

/** Whether a key is set. */
export const hasKey: () => boolean = () => storedKey.value !== null;
/** Why a key is needed: the server has refused the last request without one, or with a key that is not valid. */
export const keyRefused: ReadonlySignal<string | undefined> = refused;
/** The server does not answer. The page tries to reach it again. */
export const isConnectionLost: ReadonlySignal<boolean> = lost;

/** With another key, nothing of the user before stays in the memory of the tab. */
export function setKey(key: string | undefined): void {
  if ((key ?? null) !== storedKey.value) sessionStorage.clear();
  if (key !== undefined) sessionStorage.setItem(KEY, key);
  storedKey.value = key ?? null;
}

export interface RequestOptions {
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Sends a request and returns the JSON of the answer. Throws a `RequestError` or a `ConnectionError`. */
export async function request<T>(method: Method, path: string, options: RequestOptions = {}): Promise<T> {
  const response = await send(method, path, options);
  return (await response.json().catch((error: unknown) => {
    throw new ConnectionError(String(error));
  })) as T;
}

/** Sends a request and returns the answer, whose status is one of success. */
export async function send(method: Method, path: string, options: RequestOptions = {}): Promise<Response> {
  const { body, headers = {}, signal: aborted } = options;
  const key = storedKey.value;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        ...(body && { 'content-type': 'application/json' }),
        ...(key !== null && { authorization: `Bearer ${key}` }),
        ...headers,
      },
      ...(body && { body: JSON.stringify(body) }),
      ...(aborted && { signal: aborted }),
    });
  } catch (error) {
    if (aborted?.aborted) throw error;
    noticeLoss();
    throw new ConnectionError('The server cannot be reached.');
  }
  lost.value = false;
  if (response.status !== 401) refused.value = undefined;
  if (response.ok) return response;
  const { message = `The server answered with the status ${response.status}.`, code } = await errorIn(response);
  if (response.status === 401) refused.value = message;
  throw new RequestError(response.status, message, code);
}

async function errorIn(response: Response): Promise<{ readonly message?: string; readonly code?: string }> {
  const body = (await response.json().catch(() => undefined)) as { error?: { message?: string; code?: string } } | null;
  return body?.error ?? {};
}

const PING_MS = 1_000;

function noticeLoss(): void {
  if (lost.value) return;
  lost.value = true;
  const ping = async (): Promise<void> => {
    if (!lost.value) return;
    const isBack = await fetch('/healthz').then(
      ({ ok }) => ok,
      () => false,
    );
    if (isBack) lost.value = false;
    else setTimeout(() => void ping(), PING_MS);
  };
  setTimeout(() => void ping(), PING_MS / 2);
}

/** Resolves when the server can be reached, at once unless the connection is lost. */
export function whenConnected(aborted: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const stop = lost.subscribe((isLost) => {
      if (isLost && !aborted.aborted) return;
      resolve();
      queueMicrotask(() => stop());
    });
    aborted.addEventListener('abort', () => resolve(), { once: true });
  });
}

export interface ServerEvent {
  /** Its name; undefined if it has none. */
  readonly event: string | undefined;
  readonly data: string;
}

export interface FollowOptions {
  /**
   * Opens the stream after the events that the page has. The first call may send something; the others must not. Undefined:
   * nothing will follow.
   */
  readonly open: () => Promise<Response | undefined>;
  /** Returns true if the stream is complete. Otherwise it is opened again when it ends. */
  readonly onEvent: (event: ServerEvent) => boolean;
  readonly signal: AbortSignal;
}

/** Whether the same request may succeed later. */
export function isTemporary(error: unknown): boolean {
  return !(error instanceof RequestError) || error.status === 503 || error.status === 429;
}

const RETRY_MS = [100, 500, 1_000, 2_000];

/**
 * Reads events until the last one, over lost connections and restarts of the server. Rejects if the server refuses a request.
 * Resolves early if it is aborted.
 */
export async function followEvents({ open, onEvent, signal: aborted }: FollowOptions): Promise<void> {
  let failures = 0;
  while (!aborted.aborted) {
    try {
      const response = await open();
      if (!response) return;
      let isComplete = false;
      await readEvents(response, aborted, (event) => {
        failures = 0;
        isComplete ||= onEvent(event);
      });
      if (isComplete) return;
    } catch (error) {
      if (aborted.aborted) return;
      if (!isTemporary(error)) throw error;
    }
    const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]!;
    failures += 1;
    await new Promise((resolve) => setTimeout(resolve, wait));
    await whenConnected(aborted);
  }
}

/** Calls `onEvent` for each event until the stream ends or is aborted. */
async function readEvents(
  response: Response,
  aborted: AbortSignal,
  onEvent: (event: ServerEvent) => void,
): Promise<void> {
  const parser = createParser({ onEvent: ({ event, data }) => onEvent({ event, data }) });
  const decoder = new TextDecoder();
  const reader = response.body!.getReader();
  // The request may have been sent without the signal.
  const stop = (): void => void reader.cancel().catch(() => {});
  aborted.addEventListener('abort', stop, { once: true });
  if (aborted.aborted) stop();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || aborted.aborted) return;
      parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    aborted.removeEventListener('abort', stop);
  }
}
