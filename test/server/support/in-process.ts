import { setTimeout } from 'node:timers/promises';
import type { Model } from '@treadle/core';
import { newLog, treadleServer, type ServerStore, type TreadleServerOptions } from '@treadle/server';
import { openTestStore } from './test-store.ts';

/** A server in the process of the test. */
export interface InProcessServer extends AsyncDisposable {
  readonly url: string;
  /** The number of responses that it resumed when it started. */
  readonly recovered: number;
  /** Creates a response. */
  post(body: object, headers?: Readonly<Record<string, string>>): Promise<{ status: number; text: string }>;
  /** Sends any request. */
  send(method: string, path: string, body?: object, headers?: Readonly<Record<string, string>>): Promise<JsonAnswer>;
  /** Fetches a response. */
  get(id: string, headers?: Readonly<Record<string, string>>): Promise<Record<string, unknown>>;
  /** Fetches a response until it is no longer in progress. */
  getEnded(id: string, headers?: Readonly<Record<string, string>>): Promise<Record<string, unknown>>;
}

export interface JsonAnswer {
  readonly status: number;
  // The tests check what is in it.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly body: any;
}

/** Starts the server in this process, so that a test can replace the store or the model. */
export async function startInProcess(
  model: Model,
  options: Partial<TreadleServerOptions> & { readonly store?: ServerStore } = {},
): Promise<InProcessServer> {
  const store = options.store ?? (await openTestStore());
  const models = { default: 'm', models: new Map([['m', model]]) };
  const server = treadleServer({
    port: 0,
    models,
    // A title takes a step of a scripted model.
    chatTitles: false,
    log: newLog({ level: 'silent' }),
    ...options,
    store,
  });
  const { url, recovered } = await server.listen();
  const get: InProcessServer['get'] = async (id, headers = {}) =>
    (await (await fetch(`${url}/v1/responses/${id}`, { headers })).json()) as Record<string, unknown>;
  return {
    url,
    recovered,
    get,
    async post(body, headers = {}) {
      const answer = await fetch(`${url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      });
      return { status: answer.status, text: await answer.text() };
    },
    async send(method, path, body, headers = {}) {
      const answer = await fetch(url + path, {
        method,
        headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: answer.status, body: await answer.json() };
    },
    async getEnded(id, headers) {
      let response = await get(id, headers);
      while (response['status'] === 'in_progress') {
        await setTimeout(5);
        response = await get(id, headers);
      }
      return response;
    },
    async [Symbol.asyncDispose]() {
      await server.close(0);
      if (!options.store) await store.close();
    },
  };
}

export const eventTypesIn = (text: string): string[] => [...text.matchAll(/^event: (.*)$/gm)].map(([, type]) => type!);
export const responseIdIn = (text: string): string => /"id":"(resp_\w+)"/.exec(text)![1]!;
