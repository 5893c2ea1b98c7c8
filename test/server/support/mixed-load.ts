import { expect } from 'vitest';
import type { Provider, Script } from '../../provider/provider.ts';
import type { Step } from '../../provider/script.ts';
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

export async function mixedLoad(server: ServerProcess, provider: Provider, clients: number): Promise<MixedLoad> {
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
          await KINDS[n % KINDS.length]!({ server, script, n });
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

/** Each sends one request and checks the result. */
const KINDS: readonly ((context: RequestContext) => Promise<void>)[] = [
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
