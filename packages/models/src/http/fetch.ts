import type { Send } from './send.ts';

export type Fetch = typeof globalThis.fetch;

/** Sends with somebody's own `fetch`, for proxies, recording, other runtimes. Slower than `dispatch`. */
export function fetchSend(fetch: Fetch): Send {
  return (post, answer) => {
    const hangUp = new AbortController();

    const send = async (): Promise<void> => {
      const response = await fetch(post.url, {
        method: 'POST',
        headers: post.headers,
        body: Buffer.concat(post.body),
        redirect: 'manual',
        signal: hangUp.signal,
      });
      if (!hangUp.signal.aborted) answer.head(response.status, (name) => response.headers.get(name) ?? undefined);
      // Leaving the loop early cancels the body, also when the given `fetch` takes no notice of the signal.
      for await (const chunk of response.body ?? []) {
        if (hangUp.signal.aborted) return;
        answer.data(chunk);
      }
      if (!hangUp.signal.aborted) answer.end();
    };

    send().catch((thrown: unknown) => {
      if (!hangUp.signal.aborted) answer.fail(thrown);
    });
    return () => hangUp.abort();
  };
}
