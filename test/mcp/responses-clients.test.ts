import { createOpenAI } from '@ai-sdk/openai';
import { Agent, hostedMcpTool, OpenAIProvider, Runner, tool as agentTool } from '@openai/agents';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { Message, Model } from '@treadle/core';
import { generateText, isStepCount, streamText, tool, type ModelMessage } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { startInProcess } from '../server/support/in-process.ts';
import { startRemoteServer, type RemoteServer } from './remote-server.ts';

let remote: RemoteServer;
beforeAll(async () => {
  remote = await startRemoteServer();
});
afterAll(async () => remote[Symbol.asyncDispose]());
beforeEach(() => {
  remote.calls.length = 0;
});

interface Setting extends AsyncDisposable {
  readonly baseURL: string;
  /** The conversations that the model was sent: one text per message. */
  readonly conversations: string[][];
}

async function setting(...steps: readonly ScriptStep[]): Promise<Setting> {
  const script = scriptedModel(steps);
  const conversations: string[][] = [];
  const model: Model = {
    ...script,
    reply(request, ...others) {
      conversations.push(request.messages.map(textOf));
      return script.reply(request, ...others);
    },
  };
  const server = await startInProcess(model, { mcpServers: { allowPrivate: true } });
  return {
    baseURL: `${server.url}/v1`,
    conversations,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

function textOf({ role, content }: Message): string {
  const parts = content.map((part) => {
    if (part.type === 'tool-call') return `[${part.name}]`;
    if (part.type !== 'tool-result') return 'text' in part ? part.text : part.type;
    return `[${part.content.map((block) => ('text' in block ? block.text : block.type)).join()}]`;
  });
  return `${role}: ${parts.join(' ')}`;
}

const MAIL = { name: 'send_mail', arguments: '{"to":"ann"}' };
const BOB = { name: 'send_mail', arguments: '{"to":"bob"}' };
const NOTE = { name: 'read_note', arguments: '{}' };
const WEATHER = { name: 'weather', arguments: '{}' };

describe('@openai/agents', () => {
  function runner({ baseURL }: Setting): Runner {
    const openAIClient = new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 });
    return new Runner({
      modelProvider: new OpenAIProvider({ openAIClient, useResponses: true }),
      tracingDisabled: true,
    });
  }

  const weather = agentTool({
    name: 'weather',
    description: 'The weather',
    parameters: z.object({}),
    execute: () => 'fine',
  });

  test.each(['whole', 'streamed'])('interrupts the run for approvals, and continues with them, %s', async (how) => {
    await using at = await setting({ text: 'Look.', calls: [MAIL, NOTE, WEATHER, BOB] }, 'Done.');
    const server = hostedMcpTool({
      serverLabel: 'mail',
      serverUrl: remote.url,
      requireApproval: { never: { toolNames: ['read_note'] }, always: { toolNames: ['send_mail'] } },
    });
    const agent = new Agent({ name: 'Helper', model: 'm', tools: [weather, server] });
    const runs = runner(at);
    const run = async (input: Parameters<typeof runs.run>[1]) => {
      if (how === 'whole') return runs.run(agent, input as string);
      const streamed = await runs.run(agent, input as string, { stream: true });
      await streamed.completed;
      return streamed;
    };
    const first = await run('Go');
    expect(first.interruptions.map(({ name }) => name)).toEqual(['send_mail', 'send_mail']);
    expect(remote.calls).toEqual(['read_note {}']);
    const [ann, bob] = first.interruptions;
    first.state.approve(ann!);
    first.state.reject(bob!, { message: 'not to bob' });
    const second = await run(first.state as never);
    expect(second.finalOutput).toBe('Done.');
    expect(remote.calls).toEqual(['read_note {}', 'send_mail {"to":"ann"}']);
    expect(at.conversations[1]).toEqual([
      'user: Go',
      'assistant: Look. [send_mail] [read_note] [weather] [send_mail]',
      'tool: [sent to ann] [the note] [fine] [The call of "send_mail" was not approved: not to bob]',
    ]);
  });

  test('decides in a callback, and continues the conversation', async () => {
    await using at = await setting({ calls: [MAIL] }, 'Sent.', 'Bye.');
    const onApproval = async (_: unknown, item: { rawItem: { name?: string } }) => ({
      approve: item.rawItem.name === 'send_mail',
    });
    const server = hostedMcpTool({
      serverLabel: 'mail',
      serverUrl: remote.url,
      requireApproval: 'always',
      onApproval: onApproval as never,
    });
    const agent = new Agent({ name: 'Helper', model: 'm', tools: [server] });
    const first = await runner(at).run(agent, 'Go');
    expect(first.finalOutput).toBe('Sent.');
    const last = await runner(at).run(agent, [...first.history, { role: 'user', content: 'Thanks' }]);
    expect(last.finalOutput).toBe('Bye.');
    expect(at.conversations[2]).toEqual([
      'user: Go',
      'assistant: [send_mail]',
      'tool: [sent to ann]',
      'assistant: Sent.',
      'user: Thanks',
    ]);
    expect(remote.calls).toEqual(['send_mail {"to":"ann"}']);
  });
});

describe('the AI SDK', () => {
  const weather = tool({ description: 'The weather', inputSchema: z.object({}), execute: () => 'fine' });

  test.each(['generateText', 'streamText'])('%s asks for approvals of provider-executed tools', async (how) => {
    await using at = await setting({ text: 'Look.', calls: [NOTE, MAIL] }, 'Sent.', { calls: [BOB] }, 'Not sent.');
    const openai = createOpenAI({ baseURL: at.baseURL, apiKey: 'any' });
    const server = openai.tools.mcp({
      serverLabel: 'mail',
      serverUrl: remote.url,
      requireApproval: { never: { toolNames: ['read_note'] } },
    });
    const messages: ModelMessage[] = [{ role: 'user', content: 'Go' }];
    const step = async () => {
      const request = {
        model: openai.responses('m'),
        messages,
        tools: { mail: server, weather },
        stopWhen: isStepCount(5),
        maxRetries: 0,
      };
      const result = how === 'generateText' ? await generateText(request) : streamText(request);
      if ('consumeStream' in result) await result.consumeStream();
      const content = await result.content;
      messages.push(...(await result.response).messages);
      return { content, text: await result.text };
    };
    const approvalsIn = (content: readonly { type: string }[]) =>
      content.flatMap((part) =>
        part.type === 'tool-approval-request' ? (part as never as { approvalId: string }) : [],
      );
    const answer = (approvalId: string, approved: boolean) =>
      messages.push({
        role: 'tool',
        content: [{ type: 'tool-approval-response', approvalId, approved, providerExecuted: true }],
      });

    const [asked] = approvalsIn((await step()).content);
    expect(remote.calls).toEqual(['read_note {}']);
    answer(asked!.approvalId, true);
    expect((await step()).text).toBe('Sent.');
    expect(remote.calls).toEqual(['read_note {}', 'send_mail {"to":"ann"}']);
    expect(at.conversations[1]).toEqual([
      'user: Go',
      'assistant: Look. [read_note] [send_mail]',
      'tool: [the note] [sent to ann]',
    ]);
    messages.push({ role: 'user', content: 'And bob' });
    const [second] = approvalsIn((await step()).content);
    answer(second!.approvalId, false);
    expect((await step()).text).toBe('Not sent.');
    expect(at.conversations[3]!.at(-1)).toContain('was not approved');
    expect(remote.calls).toHaveLength(2);
  });
});
