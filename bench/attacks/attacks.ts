import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** What one client does to harm the others. */
export interface Attack {
  readonly id: string;
  readonly title: string;
  /** The model names that it uses. */
  readonly scripts: readonly string[];
  /** Resolves when the server has answered, or after some seconds. Throws if the server gave an unexpected answer. */
  readonly run: (server: Target) => Promise<void>;
}

export interface Target {
  readonly host: string;
  readonly port: number;
}

const MB = 1_000_000;
/** Just below the default limit of a body. */
const LARGEST_BODY = 16 * 1024 * 1024 - 1_024;
const TEXT = 'text:1';
/** A file of 9.9 MB. */
const LARGE_FILE = Buffer.alloc(9.9 * MB, 7).toString('base64');

export const ATTACKS: readonly Attack[] = [
  {
    id: 'pipelining',
    title: '400 pipelined GETs of a response with 10 MB of instructions',
    scripts: [TEXT],
    async run(server) {
      const id = await createResponse(server, { instructions: 'x'.repeat(10 * MB), input: 'Hello' });
      const socket = await openSocket(server);
      socket.pause();
      socket.write(getOf(`/v1/responses/${id}`).repeat(400));
      await sleep(1_000);
      socket.resume();
      await sleep(4_000);
      socket.destroy();
    },
  },
  {
    id: 'glob',
    title: 'glob with a brace pattern of 350 kB',
    scripts: ['hostile:glob'],
    run: (server) => expectAnswers(server, { model: 'hostile:glob', tools: OWN_TOOLS, store: false }, 5),
  },
  {
    id: 'grep',
    title: 'grep with a catastrophic pattern, and a wide glob',
    scripts: ['hostile:grep'],
    run: (server) => expectAnswers(server, { model: 'hostile:grep', tools: OWN_TOOLS, store: false }, 5),
  },
  {
    id: 'continuations',
    title: '40 continuations of a conversation of 30 MB',
    scripts: [TEXT],
    async run(server) {
      const previous = await createLargeRun(server);
      await expectAnswers(server, { input: 'Go on', previous_response_id: previous }, 40);
    },
  },
  {
    id: 'forks',
    title: '20 forks of a run of 30 MB',
    scripts: [TEXT],
    async run(server) {
      const id = await createLargeRun(server);
      const fork = Buffer.from(JSON.stringify({ at: 0 }));
      await expectEach(20, () => send(server, 'POST', `/v1/runs/${id}/fork`, fork));
    },
  },
  {
    id: 'runs',
    title: '100 requests for a run of 30 MB',
    scripts: [TEXT],
    async run(server) {
      const id = await createLargeRun(server);
      await expectEach(100, () => send(server, 'GET', `/v1/runs/${id}`));
    },
  },
  {
    id: 'run-events',
    title: '60 clients that never read the events of a run of 30 MB',
    scripts: [TEXT],
    async run(server) {
      const id = await createLargeRun(server);
      await neverRead(server, 60, getOf(`/v1/runs/${id}/events`, 'Accept: text/event-stream\r\n'));
    },
  },
  {
    id: 'chat-export',
    title: '60 exports of a conversation of 27 MB',
    scripts: [TEXT],
    async run(server) {
      const id = await createLargeChat(server);
      await expectEach(60, () => send(server, 'GET', `/v1/chat/${id}/export?format=markdown`));
    },
  },
  {
    id: 'chat-messages',
    title: '20 messages to a conversation of 27 MB',
    scripts: [TEXT],
    async run(server) {
      const id = await createLargeChat(server);
      const message = Buffer.from(JSON.stringify({ conversation_id: id, message: 'Hello', model: TEXT }));
      await expectEach(20, () => send(server, 'POST', '/v1/chat', message));
    },
  },
  {
    id: 'chat-ui',
    title: '10 messages of 13 MB to a conversation of a front end',
    scripts: [TEXT],
    async run(server) {
      const file = { type: 'file', mediaType: 'application/pdf', url: `data:application/pdf;base64,${LARGE_FILE}` };
      const message = { id: 'message', role: 'user', parts: [{ type: 'text', text: 'Hello' }, file] };
      const body = Buffer.from(JSON.stringify({ id: 'chat', messages: [message] }));
      for (let n = 0; n < 2; n++) await expectEach(10, () => send(server, 'POST', '/v1/chat/ui', body));
    },
  },
  {
    id: 'unfinished',
    title: '60 unfinished bodies of 16 MB',
    scripts: [TEXT],
    async run(server) {
      const part = Buffer.alloc(LARGEST_BODY - 100, 'x');
      const sockets = await Promise.all(Array.from({ length: 60 }, () => openSocket(server)));
      for (const socket of sockets) {
        socket.write(`${postHead(LARGEST_BODY)}{"input":"`);
        socket.write(part);
        socket.resume();
      }
      await sleep(5_000);
      for (const socket of sockets) socket.destroy();
    },
  },
  {
    id: 'never-reading',
    title: '100 clients that never read a response of 10 MB',
    scripts: [TEXT],
    async run(server) {
      const id = await createResponse(server, { instructions: 'x'.repeat(10 * MB), input: 'Hello' });
      await neverRead(server, 100, getOf(`/v1/responses/${id}`));
    },
  },
  {
    id: 'chunks',
    title: '4 bodies of 200 kB in chunks of one byte',
    scripts: [TEXT],
    async run(server) {
      const sockets = await Promise.all(Array.from({ length: 4 }, () => openSocket(server)));
      const chunks = Buffer.from('1\r\nx\r\n'.repeat(50_000));
      await Promise.all(
        sockets.map(async (socket) => {
          socket.resume();
          socket.write(postHead());
          for (let n = 0; n < 4; n++) if (!socket.write(chunks)) await once(socket, 'drain');
          await sleep(2_000);
          socket.destroy();
        }),
      );
    },
  },
  {
    id: 'disconnects',
    title: '150 clients that ask for a run of 30 MB and disconnect',
    scripts: [TEXT],
    async run(server) {
      const id = await createLargeRun(server);
      for (let n = 0; n < 150; n++) {
        const socket = await openSocket(server);
        socket.write(getOf(`/v1/runs/${id}`));
        await sleep(15);
        socket.destroy();
      }
      await sleep(2_000);
    },
  },
  {
    id: 'connections',
    title: '1,000 connections with 16 requests for a list each',
    scripts: [TEXT],
    async run(server) {
      await createResponse(server, { input: 'Hello' });
      const sockets = await Promise.all(Array.from({ length: 1_000 }, () => openSocket(server)));
      for (const socket of sockets) socket.resume().write(getOf('/v1/runs').repeat(16));
      await sleep(6_000);
      for (const socket of sockets) socket.destroy();
    },
  },
  body('keys', 'many short keys', () => `{"input":{${'"a":0,'.repeat(LARGEST_BODY / 6 - 8)}"b":1}}`),
  body('arrays', 'nothing but empty arrays', () => `{"input":[${'[],'.repeat(LARGEST_BODY / 3 - 8)}[]]}`),
  body('depth', 'nothing but opening brackets', () => '['.repeat(LARGEST_BODY)),
  body('malformed', 'an error at the end', () => `{"input":"${'x'.repeat(LARGEST_BODY - 100)}"`),
  body('escapes', 'nothing but escapes', () => `{"input":"${'\\n'.repeat(LARGEST_BODY / 2 - 100)}"}`),
  body('values', '72,000 values', () => `{"input":[${'{"a":[0]},'.repeat(24_000)}0]}`),
  {
    id: 'large-requests',
    title: '20 requests with 15 MB of text at the same time',
    scripts: [TEXT],
    run: (server) => expectAnswers(server, { input: largeInput('x') }, 20),
  },
  provider('plain', 'a provider that streams 40 MB of text as text/plain'),
  provider('calls', 'a provider that streams 100,000 calls'),
  provider('arguments', 'a provider that streams 100 MB of arguments'),
];

/** 15 MB. A text has at most 10 MB. */
function largeInput(char: string): readonly object[] {
  return [1, 2].map(() => ({ role: 'user', content: char.repeat(7.5 * MB) }));
}

function body(id: string, what: string, make: () => string): Attack {
  return {
    id: `body-${id}`,
    title: `3 bodies of up to 16 MiB: ${what}`,
    scripts: [TEXT],
    async run(server) {
      const bytes = Buffer.from(make());
      for (let n = 0; n < 3; n++) await post(server, bytes);
    },
  };
}

function provider(id: string, title: string): Attack {
  const model = `hostile:${id}`;
  return {
    id: `provider-${id}`,
    title,
    scripts: [model],
    async run(server) {
      const { text } = await post(server, Buffer.from(JSON.stringify({ model, input: 'Hello', stream: true })));
      if (!/event: response\.(completed|failed|incomplete)\n/.test(text)) throw new Error('no terminal event');
    },
  };
}

/** The tools of the server. */
const OWN_TOOLS = [{ type: 'mcp', server_label: 'treadle' }];

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Sends the same request many times at once. Each is answered, or refused with `Retry-After`. */
async function expectAnswers(server: Target, fields: object, count: number): Promise<void> {
  const bytes = Buffer.from(JSON.stringify({ model: TEXT, input: 'Hello', ...fields }));
  await expectEach(count, () => post(server, bytes));
}

/** 409: a conversation has one run at a time. */
const EXPECTED: readonly number[] = [200, 409, 413, 429, 503];

async function expectEach(count: number, ask: () => Promise<Answer>): Promise<void> {
  for (const { status, text } of await Promise.all(Array.from({ length: count }, ask))) {
    if (!EXPECTED.includes(status)) throw new Error(`${status}: ${text.slice(0, 200)}`);
  }
}

/** Sends the same request on many connections, and reads no answer for some seconds. */
async function neverRead(server: Target, count: number, request: string): Promise<void> {
  const sockets = await Promise.all(Array.from({ length: count }, () => openSocket(server)));
  for (const socket of sockets) {
    socket.pause();
    socket.write(request);
  }
  await sleep(6_000);
  for (const socket of sockets) socket.destroy();
}

/** Resolves to the id of a response, which is that of its run. */
async function createLargeRun(server: Target): Promise<string> {
  const first = await createResponse(server, { input: largeInput('x') });
  return createResponse(server, { input: largeInput('y'), previous_response_id: first });
}

async function createLargeChat(server: Target): Promise<string> {
  const attachments = [{ name: 'a.pdf', media_type: 'application/pdf', data: LARGE_FILE }];
  let id: string | undefined;
  for (let n = 0; n < 2; n++) {
    const message = { message: 'Hello', attachments, model: TEXT, ...(id !== undefined && { conversation_id: id }) };
    const { status, text } = await send(server, 'POST', '/v1/chat', Buffer.from(JSON.stringify(message)));
    id = /conv_\w+/.exec(text)?.[0];
    if (status !== 200 || id === undefined) throw new Error(`${status}: ${text.slice(0, 200)}`);
  }
  return id!;
}

async function createResponse(server: Target, fields: object): Promise<string> {
  const { status, text } = await post(server, Buffer.from(JSON.stringify({ model: TEXT, ...fields })));
  const id = /"id":"(resp_[^"]+)"/.exec(text)?.[1];
  if (status !== 200 || id === undefined) throw new Error(`${status}: ${text.slice(0, 200)}`);
  return id;
}

function post(server: Target, bytes: Buffer): Promise<Answer> {
  return send(server, 'POST', '/v1/responses', bytes);
}

function send({ host, port }: Target, method: string, path: string, bytes?: Buffer): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = bytes ? { 'content-type': 'application/json', 'content-length': bytes.length } : {};
    const sent = httpRequest({ host, port, path, method, headers, agent: false }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => resolve({ status: answer.statusCode!, text: Buffer.concat(chunks).toString() }));
      answer.on('error', reject);
    });
    // The server closes the connection when it has refused a body.
    sent.on('error', () => resolve({ status: 503, text: '' }));
    sent.end(bytes);
  });
}

async function openSocket({ host, port }: Target): Promise<Socket> {
  const socket = connect(port, host);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

function getOf(path: string, headers = ''): string {
  return `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n${headers}\r\n`;
}

/** Without a length, the body is sent in chunks. */
function postHead(length?: number): string {
  const size = length === undefined ? 'Transfer-Encoding: chunked' : `Content-Length: ${length}`;
  return `POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n${size}\r\n\r\n`;
}
