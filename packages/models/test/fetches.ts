type Fetch = typeof globalThis.fetch;

const TYPES: Record<string, string> = {
  sse: 'text/event-stream; charset=utf-8',
  ndjson: 'application/x-ndjson',
  json: 'application/json',
};

/** The content type of the recorded answer with this name. */
export const typeOf = (name: string): string => TYPES[name.slice(name.lastIndexOf('.') + 1)]!;

/** Answers every request with these bytes, in small chunks. */
export function serving(bytes: Uint8Array<ArrayBuffer>, type: string): Fetch {
  return async () => {
    const chunks = Array.from({ length: Math.ceil(bytes.length / 17) }, (_, n) => bytes.subarray(n * 17, n * 17 + 17));
    return new Response(ReadableStream.from(chunks), { headers: { 'content-type': type } });
  };
}

export interface Seen {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Record<string, unknown>;
}

/** A provider that sends answer n to request n, and 500 to further requests. */
export function answering(...answers: Response[]): { readonly fetch: Fetch; readonly seen: readonly Seen[] } {
  const seen: Seen[] = [];
  return {
    seen,
    async fetch(url, init) {
      // Throws for a request that a real fetch would reject.
      const body = (await new Request(url, init).json()) as Record<string, unknown>;
      seen.push({ url: String(url), headers: init!.headers as Record<string, string>, body });
      return answers.shift() ?? Response.json({ error: { message: 'unexpected request' } }, { status: 500 });
    },
  };
}

/** An answer with these bytes or this text. */
export function answer(body: string | Uint8Array<ArrayBuffer>, type: string, status = 200): Response {
  return new Response(body, { status, headers: { 'content-type': type } });
}
