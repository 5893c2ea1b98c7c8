import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { McpServer as OfficialServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { runLoop, textOf } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools } from '@treadle/tools/mcp';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';

/* Servers of HTTP with server-sent events, which the newer transport has replaced, written with the official SDK. */

interface SseServer extends AsyncDisposable {
  readonly url: string;
  /** The requests so far. */
  readonly requests: string[];
  /** Ends all streams, as a server that is started again. */
  cut(): void;
}

async function startSse({ isKeyed = false } = {}): Promise<SseServer> {
  const requests: string[] = [];
  const open = new Map<string, { readonly transport: SSEServerTransport; readonly response: ServerResponse }>();
  const http = createServer((request, response) => {
    const url = new URL(request.url!, 'http://localhost');
    requests.push(`${request.method} ${url.pathname}`);
    if (isKeyed && request.headers.authorization !== 'Bearer k') return void response.writeHead(401).end();
    const known = open.get(url.searchParams.get('sessionId') ?? '');
    if (request.method === 'POST' && known) return void known.transport.handlePostMessage(request, response);
    if (request.method !== 'GET' || url.pathname !== '/sse') return void response.writeHead(404).end('Cannot POST');
    const transport = new SSEServerTransport('/messages', response);
    open.set(transport.sessionId, { transport, response });
    const server = new OfficialServer({ name: 'old', version: '1' });
    server.registerTool('add', { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => ({
      content: [{ type: 'text', text: String(a + b) }],
    }));
    void server.connect(transport);
  });
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done));
  const cut = (): void => {
    for (const { response } of open.values()) response.destroy();
    open.clear();
  };
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/sse`,
    requests,
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      http.closeAllConnections();
      await new Promise((done) => http.close(done));
    },
  };
}

describe('a server of HTTP with server-sent events', () => {
  test('is found out once, and its tools are called', async () => {
    await using old = await startSse();
    const server = mcpServer({ name: 'old', url: old.url });
    try {
      const info = await server.connect();
      expect([info.name, info.protocolVersion]).toEqual(['old', '2025-11-25']);
      const result = await runLoop({
        model: scriptedModel([{ calls: [{ name: 'add', arguments: { a: 2, b: 3 } }] }, 'Five.']),
        tools: await mcpTools(server),
        input: 'Go',
      });
      const [answered] = result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
      expect([answered!.isError, textOf(answered!.content)]).toEqual([false, '5']);
      const before = old.requests.filter((request) => request === 'POST /sse').length;
      old.cut();
      // The connection is opened again, without a request of the newer transport.
      await expect
        .poll(() =>
          server.listTools().then(
            (tools) => tools.length,
            () => 0,
          ),
        )
        .toBe(1);
      expect(old.requests.filter((request) => request === 'POST /sse')).toHaveLength(before);
    } finally {
      await server.close();
    }
  });

  test('gets the headers with all requests', async () => {
    await using old = await startSse({ isKeyed: true });
    const server = mcpServer({ name: 'old', url: old.url, headers: { authorization: 'Bearer k' } });
    const other = mcpServer({ name: 'old', url: old.url });
    try {
      expect((await server.listTools()).map(({ name }) => name)).toEqual(['add']);
      await expect(other.listTools()).rejects.toMatchObject({ code: 'unauthorized' });
    } finally {
      await Promise.all([server.close(), other.close()]);
    }
  });
});

test('an address without a server is reported with the answer to the newer request', async () => {
  const http = createServer((_, response) => void response.writeHead(404).end('Nothing here'));
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done));
  const server = mcpServer({ name: 'none', url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp` });
  try {
    await expect(server.connect()).rejects.toThrow('404');
  } finally {
    await server.close();
    http.closeAllConnections();
    http.close();
  }
});
