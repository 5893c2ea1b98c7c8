import { expect } from 'vitest';
import type { Provider, Script } from '../../provider/provider.ts';
import type { Step } from '../../provider/script.ts';
import { modelOf, type ServerProcess } from '../process/start.ts';

const TOOLS = [
  { type: 'mcp', server_label: 'treadle' },
  { type: 'function', name: 'pay', parameters: { type: 'object', properties: {} } },
];

/** Clients that ask one thing after the other, of every kind, until they are told to stop. */
export interface MixedLoad {
  /** Sends so many requests more, and resolves when all are answered. */
  readonly send: (requests: number) => Promise<void>;
}

export async function mixedLoad(server: ServerProcess, provider: Provider, clients: number): Promise<MixedLoad> {
  // A few models that stay, as on a real server; what they are to say is added as it is needed.
  const scripts = await Promise.all(Array.from({ length: clients }, () => provider.script([])));
  let sent = 0;
  return {
    async send(requests) {
      let left = requests;
      const work = async (script: Script): Promise<void> => {
        while (left > 0) {
          left -= 1;
          const n = sent++;
          await KINDS[n % KINDS.length]!({ server, script, n });
        }
      };
      await Promise.all(scripts.map(work));
    },
  };
}

interface Asking {
  readonly server: ServerProcess;
  readonly script: Script;
  readonly n: number;
}

/** One request each. */
const KINDS: readonly ((asking: Asking) => Promise<void>)[] = [
  async (asking) => {
    const answer = await ask(asking, '/v1/responses', { input: `Ask ${asking.n}` }, [{ text: `Answer ${asking.n}` }]);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain(`"text":"Answer ${asking.n}"`);
  },
  async (asking) => {
    const steps = [{ text: 'I add.', calls: [add(asking.n), FAIL] }, { text: `Streamed ${asking.n}` }];
    const answer = await ask(asking, '/v1/responses', { input: 'go', tools: TOOLS, stream: true }, steps);
    const text = await answer.text();
    expect(text).toContain('event: response.completed\n');
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  },
  async (asking) => {
    const steps = [{ text: 'I pay.', calls: [{ name: 'pay', arguments: '{}' }, add(asking.n)] }];
    const body = { input: 'go', tools: TOOLS, store: asking.n % 2 === 0 };
    const answer = await ask(asking, '/v1/responses', body, steps);
    const { pending_call_ids: pending } = (await answer.json()) as { readonly pending_call_ids: readonly string[] };
    expect(pending).toHaveLength(1);
  },
  async (asking) => {
    const body = { messages: [{ role: 'user', content: 'go' }], tools: [], stream: true };
    const answer = await ask(asking, '/v1/chat/completions', body, [{ reasoning: 'Hm.', text: `Chat ${asking.n}` }]);
    expect((await answer.text()).endsWith('data: [DONE]\n\n')).toBe(true);
  },
  async (asking) => {
    const steps: Step[] = [{ text: 'I add.', calls: [add(asking.n)] }, { fault: 'error-in-stream' }];
    const answer = await ask(asking, '/v1/responses', { input: 'go', tools: TOOLS, stream: true }, steps);
    expect(await answer.text()).toContain('event: response.failed\n');
  },
  async (asking) => {
    const answer = await ask(asking, '/v1/responses', { input: 'go', store: false }, [
      { fault: 'status', status: 500 },
    ]);
    expect(answer.status).toBeGreaterThanOrEqual(500);
    await answer.text();
  },
  async (asking) => {
    const answer = await ask(asking, '/v1/responses', { input: 7 }, []);
    expect(answer.status).toBe(400);
    await answer.text();
  },
  // It goes away in the middle.
  async (asking) => {
    const steps: Step[] = [{ fault: 'stall', reply: { text: 'Half of this comes, and then nothing.' } }];
    const gone = new AbortController();
    const answer = await ask(asking, '/v1/responses', { input: 'go', stream: true }, steps, gone.signal);
    const reader = answer.body!.getReader();
    const decoder = new TextDecoder();
    let text = '';
    while (!text.includes('output_text.delta')) text += decoder.decode((await reader.read()).value, { stream: true });
    gone.abort();
    await expect(reader.read()).rejects.toThrow('aborted');
  },
];

async function ask(
  { server, script }: Asking,
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
