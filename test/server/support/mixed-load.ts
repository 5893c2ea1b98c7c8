import { expect } from 'vitest';
import type { Provider, Script } from '../../provider/provider.ts';
import type { Step } from '../../provider/script.ts';
import { followChat, postChat, type ChatEvents } from './chat-events.ts';
import { modelOf, type ServerProcess } from './server-process.ts';

const TOOLS = [
  { type: 'mcp', server_label: 'treadle' },
  { type: 'function', name: 'pay', parameters: { type: 'object', properties: {} } },
];

/** Clients that send requests of all kinds, each client one after the other. */
export interface MixedLoad {
  /** Sends this many requests; resolves when all are answered. */
  readonly send: (requests: number) => Promise<void>;
}

/** The server must not write titles: they take replies of the scripts. */
export async function mixedLoad(
  server: ServerProcess,
  provider: Provider,
  clients: number,
  kinds: readonly RequestKind[] = [...KINDS, ...CHAT_KINDS],
): Promise<MixedLoad> {
  // A few models that stay, as on a real server. Their replies are added with each request.
  const scripts = await Promise.all(Array.from({ length: clients }, () => provider.script([])));
  let sent = 0;
  return {
    async send(requests) {
      let remaining = requests;
      const runClient = async (script: Script): Promise<void> => {
        while (remaining > 0) {
          remaining -= 1;
          const n = sent++;
          await kinds[n % kinds.length]!({ server, script, n });
        }
      };
      await Promise.all(scripts.map(runClient));
    },
  };
}

interface RequestContext {
  readonly server: ServerProcess;
  readonly script: Script;
  readonly n: number;
}

/** Sends one request and checks the result. */
type RequestKind = (context: RequestContext) => Promise<void>;

const KINDS: readonly RequestKind[] = [
  async (context) => {
    const answer = await post(context, '/v1/responses', { input: `Ask ${context.n}` }, [
      { text: `Answer ${context.n}` },
    ]);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain(`"text":"Answer ${context.n}"`);
  },
  async (context) => {
    const steps = [{ text: 'I add.', calls: [add(context.n), FAIL] }, { text: `Streamed ${context.n}` }];
    const answer = await post(context, '/v1/responses', { input: 'go', tools: TOOLS, stream: true }, steps);
    const text = await answer.text();
    expect(text).toContain('event: response.completed\n');
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  },
  async (context) => {
    const steps = [{ text: 'I pay.', calls: [{ name: 'pay', arguments: '{}' }, add(context.n)] }];
    const body = { input: 'go', tools: TOOLS, store: context.n % 2 === 0 };
    const answer = await post(context, '/v1/responses', body, steps);
    const { pending_call_ids: pending } = (await answer.json()) as { readonly pending_call_ids: readonly string[] };
    expect(pending).toHaveLength(1);
  },
  async (context) => {
    const body = { messages: [{ role: 'user', content: 'go' }], tools: [], stream: true };
    const answer = await post(context, '/v1/chat/completions', body, [{ reasoning: 'Hm.', text: `Chat ${context.n}` }]);
    expect((await answer.text()).endsWith('data: [DONE]\n\n')).toBe(true);
  },
  async (context) => {
    const steps: Step[] = [{ text: 'I add.', calls: [add(context.n)] }, { fault: 'error-in-stream' }];
    const answer = await post(context, '/v1/responses', { input: 'go', tools: TOOLS, stream: true }, steps);
    expect(await answer.text()).toContain('event: response.failed\n');
  },
  async (context) => {
    const answer = await post(context, '/v1/responses', { input: 'go', store: false }, [
      { fault: 'status', status: 500 },
    ]);
    expect(answer.status).toBeGreaterThanOrEqual(500);
    await answer.text();
  },
  async (context) => {
    const answer = await post(context, '/v1/responses', { input: 7 }, []);
    expect(answer.status).toBe(400);
    await answer.text();
  },
  // The client disconnects in the middle of the stream.
  async (context) => {
    const steps: Step[] = [{ fault: 'stall', reply: { text: 'Half of this comes, and then nothing.' } }];
    const connection = new AbortController();
    const answer = await post(context, '/v1/responses', { input: 'go', stream: true }, steps, connection.signal);
    const reader = answer.body!.getReader();
    const decoder = new TextDecoder();
    let text = '';
    while (!text.includes('output_text.delta')) text += decoder.decode((await reader.read()).value, { stream: true });
    connection.abort();
    await expect(reader.read()).rejects.toThrow('aborted');
  },
];

/** Each sends one message to a conversation, or two. */
export const CHAT_KINDS: readonly RequestKind[] = [
  async (context) => {
    const first = await chat(context, {}, [{ text: 'I add.', calls: [add(context.n), FAIL] }, { text: 'Added.' }]);
    const [meta] = await chatEnded(first, 'completed');
    const next = await chat(context, { conversation_id: meta!['conversation_id'] }, [{ text: `Next ${context.n}` }]);
    await chatEnded(next, 'completed');
  },
  // The client disconnects and reads the rest.
  async (context) => {
    const steps = [{ reasoning: 'Hm.', text: 'I add.', calls: [add(context.n)] }, { text: `Added ${context.n}` }];
    const before = await chat(context, { on_disconnect: 'continue' }, steps);
    const { conversation_id: id, seq } = await before.event('conversation_meta');
    before.disconnect();
    await before.ended;
    await chatEnded(await followChat(context.server.url, id, { after: seq }), 'completed');
  },
  async (context) => {
    await chatEnded(await chat(context, {}, [{ fault: 'error-in-stream' }]), 'failed');
  },
  // The client disconnects, which cancels the answer.
  async (context) => {
    const stalled = await chat(context, {}, [{ fault: 'stall', reply: { text: 'Half of this comes, then nothing.' } }]);
    await stalled.event('token_delta');
    stalled.disconnect();
    await stalled.ended;
  },
];

async function chat({ server, script, n }: RequestContext, body: object, steps: readonly Step[]): Promise<ChatEvents> {
  await script.add(...steps);
  return postChat(server.url, { model: modelOf(script), message: `Ask ${n}`, tools: ['add', 'fail'], ...body });
}

async function chatEnded({ ended }: ChatEvents, status: string): Promise<Awaited<ChatEvents['ended']>> {
  const events = await ended;
  expect(events.at(-1)).toMatchObject({ type: 'done', status });
  return events;
}

async function post(
  { server, script }: RequestContext,
  path: string,
  body: object,
  steps: readonly Step[],
  signal: AbortSignal | null = null,
): Promise<Response> {
  if (steps.length > 0) await script.add(...steps);
  return fetch(server.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: modelOf(script), ...body }),
    signal,
  });
}

const FAIL = { name: 'fail', arguments: '{}' };

function add(n: number): { readonly name: string; readonly arguments: string } {
  return { name: 'add', arguments: JSON.stringify({ a: n, b: 1 }) };
}
