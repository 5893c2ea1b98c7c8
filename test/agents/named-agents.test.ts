import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { memoryJournal, tool, type Model } from '@treadle/core';
import {
  agentRegistry,
  agentRuntime,
  buildPrompt,
  pinnedAgent,
  type IterativeResult,
  type NamedAgent,
} from '@treadle/core/named-agents';
import { openaiChat } from '@treadle/models';
import { folderAgents, parseAgentFile } from '@treadle/tools/agents';
import { describe, expect, test } from 'vitest';

/* What the agents of files need of several packages. */

const PROMPTS = path.resolve(import.meta.dirname, '../fixtures/prompts');
const EXAMPLES = path.resolve(import.meta.dirname, '../../examples/agents');

function read(file: string): NamedAgent {
  const parsed = parseAgentFile(readFileSync(file, 'utf8'), file);
  if (parsed.type === 'agent') return parsed.agent;
  throw new Error(JSON.stringify(parsed.problems));
}

describe('the prompt', () => {
  const files = [PROMPTS, EXAMPLES].flatMap((folder) => globSync(`${folder}/*.{yaml,json,md}`)).toSorted();

  // Providers cache prompts by their bytes. A change here makes every run of every agent miss its cache once.
  test.each(files.map((file) => [path.basename(file), file]))('of %s has these bytes', (name, file) => {
    const expected = path.join(PROMPTS, `${name}.txt`);
    const agent = read(file);
    expect(buildPrompt(agent)).toBe(readFileSync(expected, 'utf8'));
    const reordered = Object.fromEntries(Object.entries(agent).toReversed()) as unknown as NamedAgent;
    expect(buildPrompt(reordered)).toBe(buildPrompt(agent));
    expect(buildPrompt(structuredClone(agent))).toBe(buildPrompt(agent));
  });

  test('has its sections in a fixed order', () => {
    const prompt = buildPrompt(read(path.join(PROMPTS, 'full.yaml')), { skills: 'The skill "x" is active.' });
    expect([...prompt.matchAll(/^# (.*)$/gm)].map(([, title]) => title)).toEqual([
      'Identity',
      'Capabilities',
      'Specified capabilities',
      'Governance',
      'Autonomy level',
      'Ownership',
      'Dependencies',
      'Inputs',
      'Outputs',
      'Execution constraints',
      'Safety guardrails',
      'Output format',
      'Skills',
    ]);
  });

  test('names no host, folder, model or time', () => {
    const agent = read(path.join(PROMPTS, 'full.yaml'));
    const { model: _, temperature: __, tools: ___, ...rest } = agent;
    expect(buildPrompt(rest)).toBe(buildPrompt(agent));
  });
});

test('the examples have no problems and no warnings', async () => {
  const agents = await folderAgents({ folders: [EXAMPLES] });
  expect([agents.problems(), agents.warnings()]).toEqual([[], []]);
  expect(agents.list().map(({ name }) => name)).toEqual(['desk', 'finder', 'summarizer']);
});

test('runs that start while the files change each have one definition as a whole', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'agents-'));
  const write = (version: number): void =>
    writeFileSync(path.join(folder, 'a.yaml'), `version: v${version}\ndescription: Is v${version}.\ntools: [look]\n`);
  write(0);
  const registry = await folderAgents({ folders: [folder] });
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', touches: () => [], execute: () => 'seen' });
  const model: Model = {
    id: 'echo',
    async reply({ instructions = '', messages }) {
      await new Promise(setImmediate);
      const [, version] = /Is (v\d+)\./.exec(instructions)!;
      const usage = { inputTokens: 1, outputTokens: 1 };
      const call = { type: 'tool-call', id: 'x', name: 'look', arguments: '{}' } as const;
      if (messages.length === 1) return { type: 'reply', content: [call], finish: 'tool-calls', usage, model: 'echo' };
      return { type: 'reply', content: [{ type: 'text', text: version! }], finish: 'stop', usage, model: 'echo' };
    },
  };
  const journal = memoryJournal();
  const agents = agentRuntime({ registry, model: () => model, tools: [look], environment: { journal } });
  const runs: Promise<IterativeResult>[] = [];
  for (let version = 1; version <= 20; version++) {
    for (let n = 0; n < 5; n++) runs.push(agents.invokeIterative('a', {}));
    write(version);
    await registry.reload();
  }
  const results = await Promise.all(runs);
  const versions = await Promise.all(
    results.map(async ({ run_id, raw_response }) => [(await pinnedAgent(journal, run_id))!.version, raw_response]),
  );
  for (const [pinned, said] of versions) expect(said).toBe(pinned);
  expect(new Set(versions.map(([pinned]) => pinned)).size).toBeGreaterThan(10);
  rmSync(folder, { recursive: true });
});

describe('a provider that rejects tools', () => {
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', touches: () => [], execute: () => 'seen' });
  const registry = agentRegistry([{ name: 'looker', description: 'Looks.', tools: ['look'] }]);

  /** A server of OpenAI's protocol without tools. */
  const fetch: typeof globalThis.fetch = (_, init) => {
    const { tools } = JSON.parse(String(init!.body)) as { readonly tools?: unknown };
    const message = 'this model does not support tools';
    if (tools)
      return Promise.resolve(Response.json({ error: { message, type: 'invalid_request_error' } }, { status: 400 }));
    const choices = [{ index: 0, delta: { content: 'Hello.' }, finish_reason: 'stop' }];
    const event = JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices });
    const headers = { 'content-type': 'text/event-stream' };
    return Promise.resolve(new Response(`data: ${event}\n\ndata: [DONE]\n\n`, { headers }));
  };

  test.each([
    ['degrade', 'completed'],
    ['error', 'error'],
  ] as const)('is handled by tool_support %s', async (toolSupport, reason) => {
    const model = openaiChat({ model: 'm', baseURL: 'http://localhost/v1', apiKey: 'k', fetch, toolSupport });
    const agents = agentRuntime({ registry, model: () => model, tools: [look] });
    expect(await agents.invokeIterative('looker', {})).toMatchObject({ termination_reason: reason });
  });
});
