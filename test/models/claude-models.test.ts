import { userText, type ModelRequest, type Settings, type ToolChoice } from '@treadle/core';
import { anthropic, type AnthropicOptions } from '@treadle/models';
import { describe, expect, test } from 'vitest';
import { CLAUDE } from '../provider/rules/anthropic-models.ts';
import { anthropicProblem } from '../provider/rules/anthropic.ts';

/** Each model of Anthropic gets only settings that it accepts. */

const tools = ['add', 'read'].map((name) => ({ name, description: 'A tool', parameters: { type: 'object' } }));

async function sentBody(
  options: Partial<AnthropicOptions>,
  fields: Partial<ModelRequest>,
): Promise<Record<string, unknown>> {
  let body: Record<string, unknown> = {};
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    body = JSON.parse(Buffer.from(init!.body as Uint8Array).toString('utf8')) as Record<string, unknown>;
    return new Response('{}', { status: 400 });
  };
  const messages = [userText('Hi')];
  const request = {
    messages,
    tools,
    toolChoice: 'auto',
    parallel: true,
    settings: {},
    key: 'r/t1',
    ...fields,
  } as const;
  const model = anthropic({ model: 'm', apiKey: 'sk-ant-test', maxRetries: 0, ...options, fetch });
  await model.reply(request, () => {}, new AbortController().signal);
  return body;
}

const choices: readonly ToolChoice[] = ['auto', 'required', 'none', { tool: 'add' }];
const samplings: readonly Settings[] = [{}, { temperature: 0 }, { topP: 0.9 }, { temperature: 1.5, topP: 0.5 }];
const efforts: readonly Settings[] = [{}, { reasoning: 'low' }, { reasoning: 'high', maxOutputTokens: 1_000 }];
const displays: readonly Partial<AnthropicOptions>[] = [{}, { thinkingDisplay: 'summarized' }];

describe.each(Object.keys(CLAUDE))('%s', (model) => {
  test.each(choices)('sends a valid request with the tool choice %j', async (toolChoice) => {
    for (const display of displays) {
      for (const sampling of samplings) {
        for (const effort of efforts) {
          const body = await sentBody({ model, ...display }, { toolChoice, settings: { ...sampling, ...effort } });
          expect([body, anthropicProblem(body)]).toEqual([body, undefined]);
        }
      }
    }
  });

  test('sends the settings that the model accepts', async () => {
    const { forced, sampling, thinking } = CLAUDE[model]!;
    expect('tool_choice' in (await sentBody({ model }, { toolChoice: 'required' }))).toBe(forced);
    expect('temperature' in (await sentBody({ model }, { settings: { temperature: 0 } }))).toBe(sampling > 0);
    const withReasoning = await sentBody({ model }, { settings: { reasoning: 'low' } });
    expect(withReasoning['thinking']).toMatchObject({ type: thinking[0] });
  });
});

test('forcedTools and sampling override what is known of the model', async () => {
  const fields = { toolChoice: 'required', settings: { temperature: 0.5 } } as const;
  expect(await sentBody({ model: 'claude-opus-5-5', forcedTools: true, sampling: true }, fields)).toMatchObject({
    tool_choice: { type: 'any' },
    temperature: 0.5,
  });
  const body = await sentBody({ model: 'claude-haiku-4-5', forcedTools: false, sampling: false }, fields);
  expect(body).not.toHaveProperty('tool_choice');
  expect(body).not.toHaveProperty('temperature');
});
