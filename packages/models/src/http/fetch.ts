import type { Send } from './send.ts';

export type Fetch = typeof globalThis.fetch;

/** Sends with somebody's own `fetch`, for proxies, recording, other runtimes. Slower than `dispatch`. */
export function fetchSend(fetch: Fetch): Send {
  return (post, answer) => {
    const hangUp = new AbortController();
    let body: ReadableStreamDefaultReader<Uint8Array> | undefined;
    /** Also where the given `fetch` takes no notice of the signal. */
    const cancel = (): void => void body?.cancel().catch(() => {});

    const send = async (): Promise<void> => {
      const response = await fetch(post.to.url, {
        method: 'POST',
        headers: post.to.headers,
        // A copy: a fetch that records may look at it when it has long been written over.
        body: Buffer.from(post.body),
        redirect: 'manual',
        signal: hangUp.signal,
      });
      body = response.body?.getReader();
      if (hangUp.signal.aborted) return cancel();
      answer.head(response.status, (name) => response.headers.get(name) ?? undefined);
      for (let piece = await body?.read(); piece?.value !== undefined; piece = await body?.read()) {
        if (hangUp.signal.aborted) return;
        await answer.data(piece.value);
        if (hangUp.signal.aborted) return;
      }
      if (!hangUp.signal.aborted) answer.end();
    };

    send().catch((thrown: unknown) => {
      if (!hangUp.signal.aborted) answer.fail(thrown);
    });
    return {
      hangUp() {
        hangUp.abort();
        cancel();
      },
    };
  };
}
