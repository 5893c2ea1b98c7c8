import { createHmac } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { frameReader } from '../../server/support/sse-frames.ts';
import type { Random } from '../../random.ts';
import { openSocket } from '../../server/support/socket-client.ts';
import type { Fact, StoredThing } from './told.ts';

/** Clients of two servers with one store, which remember everything that they are told. */
export interface Clients {
  /** Resolves when somebody was told something. */
  readonly begun: Promise<void>;
  /** Resolves when the servers are gone, to what was told. */
  readonly told: Promise<readonly Fact[]>;
  /** What others than these clients were told of a run. Not of one that is deleted: it may be gone. */
  noteRun(run: ToldRun): void;
  /** No more requests are sent. */
  stop(): void;
}

/** A run as the runs API, webhooks and MCP tell of it. */
export interface ToldRun {
  readonly id: string;
  readonly status: string;
  readonly entries: number;
}

const JSON_HEADERS = { 'content-type': 'application/json' };
const TASKS = [
  'list the files, then read notes.txt, then search it for word',
  'read notes.txt, then list the files',
  'what can you do?',
];
/** The statuses of a response that has ended. */
const ENDED = ['completed', 'failed', 'incomplete', 'cancelled'];

type Note = (fact: Fact) => void;
type Event = Readonly<Record<string, unknown>>;

interface Response {
  readonly id: string;
  readonly status: string;
  readonly output: readonly unknown[];
}

type Servers = readonly [one: string, other: string];
type Scenario = (note: Note, servers: Servers, random: Random, deleted: Set<string>) => Promise<void>;

export function startClients(urls: readonly string[], count: number, random: Random): Clients {
  const facts: Fact[] = [];
  let isStopped = false;
  const hasReader = random() < 0.5;
  const begun = Promise.withResolvers<void>();
  const deleted = new Set<string>();
  const note: Note = (fact) => {
    facts.push(fact);
    begun.resolve();
  };
  const noteRun = ({ id, status, entries }: ToldRun): void => note({ type: 'run', id, status, entries });

  async function client(): Promise<void> {
    while (!isStopped) {
      const [one, other] = hasReader || random() < 0.5 ? urls : urls.toReversed();
      const scenarios = hasReader ? WITH_READER : SCENARIOS;
      const scenario = scenarios[Math.floor(random() * scenarios.length)]!;
      // A server that is killed cuts what it sends. Without one there is nothing more to ask.
      await scenario(note, [one!, other!], random, deleted).catch(() => delay(5));
    }
  }

  const all = Promise.all(Array.from({ length: count }, client));
  const told = all.then(() =>
    facts.filter((fact) => !((fact.type === 'run' || fact.type === 'stored') && deleted.has(fact.id))),
  );
  return { begun: begun.promise, told, noteRun, stop: () => void (isStopped = true) };
}

/** The second server is only asked: it commits nothing itself. */
const WITH_READER: readonly Scenario[] = [
  background,
  background,
  runEntries,
  resource,
  repeated,
  chat,
  chat,
  live,
  socket,
  deleteWhileRead,
  listed,
  mcpTask,
  agent,
  workflow,
  trace,
  message,
  frontEnd,
  remembered,
  conversation,
  scheduled,
  triggered,
  forked,
  counted,
];
const SCENARIOS: readonly Scenario[] = [...WITH_READER, keyed, keyed];

/** The events of a background response, followed at both servers, and its status. */
async function background(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const { id } = noteResponse(note, await send(one, '/v1/responses', { input: task(random), background: true }));
  const follow = (url: string): Promise<void> =>
    readEvents(url, `/v1/responses/${id}?stream=true`, undefined, (event) => {
      note({ type: 'event', stream: `events_${id}`, seq: Number(event['sequence_number']) + 1, event });
      const { response } = event as { readonly response?: Response };
      if (response) noteResponse(note, response);
    });
  const poll = async (): Promise<void> => {
    for (let status = ''; !ENDED.includes(status);) {
      const response = noteResponse(note, await get(other, `/v1/responses/${id}`));
      ({ status } = response);
    }
  };
  await allOf([follow(one), follow(other), poll()]);
}

async function runEntries(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const { id } = noteResponse(note, await send(one, '/v1/responses', { input: task(random), background: true }));
  const noteEntry = (entry: object): void =>
    note({ type: 'entry', run: id, seq: (entry as { seq: number }).seq, entry });
  for (let status = ''; status !== 'completed';) {
    // The run starts after its response.
    const run = await get<ToldRun>(other, `/v1/runs/${id}`).catch(notFound);
    if (run) note({ type: 'run', id, status: run.status, entries: run.entries });
    if (run) await readEvents(other, `/v1/runs/${id}/events`, undefined, noteEntry);
    status = run?.status ?? '';
  }
}

/** A run as a resource of MCP, at the server that drives it and at the other one. */
async function resource(note: Note, servers: Servers, random: Random): Promise<void> {
  const { id } = noteResponse(note, await send(servers[0], '/v1/responses', { input: task(random), background: true }));
  const body = { jsonrpc: '2.0', id: 1, method: 'resources/read', params: { uri: `treadle://runs/${id}` } };
  const headers = { ...JSON_HEADERS, accept: 'application/json, text/event-stream' };
  const read = async (url: string): Promise<void> => {
    for (let status = ''; !ENDED.includes(status);) {
      const answer = await request(url, '/mcp', { method: 'POST', headers, body: JSON.stringify(body) });
      const { result } = JSON.parse(/^data: (.*)$/m.exec(answer)![1]!) as ReadResource;
      const run = result && (JSON.parse(result.contents[0].text) as ToldRun);
      if (run) note({ type: 'run', id, status: run.status, entries: run.entries });
      status = run?.status ?? '';
    }
  };
  await allOf(servers.map(read));
}

interface ReadResource {
  /** Absent: there is no such run yet. */
  readonly result?: { readonly contents: readonly [{ readonly text: string }] };
}

/** The same key at both servers, at the same time. */
async function keyed(note: Note, servers: Servers, random: Random): Promise<void> {
  const ask = requestWithKey(note, random);
  await allOf(servers.map(ask));
}

/** The same key at both servers, one after the other. */
async function repeated(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const ask = requestWithKey(note, random);
  await ask(one);
  await ask(other);
}

function requestWithKey(note: Note, random: Random): (url: string) => Promise<void> {
  const key = `key_${random()}`;
  const input = task(random);
  return async (url) => {
    const { id } = noteResponse(note, await send(url, '/v1/responses', { input }, { 'idempotency-key': key }));
    note({ type: 'key', key, id });
  };
}

/** The events of a conversation, at the server that answers and at the other one. */
async function chat(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const begun = Promise.withResolvers<string>();
  let stream: string | undefined;
  const noteEvent = (event: Event): void => {
    stream ??= String(event['conversation_id']);
    begun.resolve(stream);
    note({ type: 'event', stream, seq: Number(event['seq']), event });
  };
  const answer = readEvents(one, '/v1/chat', { message: task(random), on_disconnect: 'continue' }, noteEvent);
  answer.catch(begun.reject);
  const follow = async (): Promise<void> =>
    readEvents(other, `/v1/chat/${await begun.promise}/stream?after=0`, undefined, noteEvent);
  await allOf([answer, follow()]);
}

async function live(note: Note, [one]: Servers, random: Random): Promise<void> {
  const noteEvent = eventNoter(note);
  await readEvents(one, '/v1/responses', { input: task(random), stream: true }, noteEvent);
}

async function socket(note: Note, [one]: Servers, random: Random): Promise<void> {
  using opened = await openSocket(one);
  const noteEvent = eventNoter(note);
  opened.ws.on('message', (data: Buffer) => noteEvent(JSON.parse(data.toString()) as Record<string, unknown>));
  await opened.create({ input: task(random) });
}

/** A response that one server deletes while the other one is asked for it. */
async function deleteWhileRead(note: Note, [one, other]: Servers, random: Random, deleted: Set<string>): Promise<void> {
  const { id } = await send<Response>(one, '/v1/responses', { input: task(random) });
  deleted.add(id);
  const remove = async (): Promise<void> => {
    await request(one, `/v1/responses/${id}`, { method: 'DELETE' });
    note({ type: 'deleted', id });
  };
  const look = async (): Promise<void> => {
    while (await get(other, `/v1/responses/${id}`).catch(notFound));
    note({ type: 'deleted', id });
  };
  await allOf([remove(), look()]);
}

/** A response in the list of all, and its trace, at the other server. */
async function listed(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const { id } = noteResponse(note, await send(one, '/v1/responses', { input: task(random), background: true }));
  for (let status = ''; !ENDED.includes(status);) {
    const { data } = await get<{ readonly data: readonly Response[] }>(other, '/v1/responses?limit=50');
    // Others may be deleted.
    const found = data.find((response) => response.id === id);
    if (found) noteResponse(note, found);
    status = found?.status ?? 'completed';
  }
  const trace = await get<{ readonly run_id: string; readonly status: string }>(other, `/v1/traces/${id}`);
  if (ENDED.includes(trace.status)) note({ type: 'ended', run: trace.run_id, status: trace.status });
}

/** A call of a tool as a task of an older client, in a session that both servers have. */
async function mcpTask(note: Note, [one, other]: Servers): Promise<void> {
  const accept = { ...JSON_HEADERS, accept: 'application/json, text/event-stream' };
  const opening = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: opening });
  const opened = await fetch(`${one}/mcp`, { method: 'POST', headers: accept, body });
  await opened.text();
  const session = { 'mcp-session-id': opened.headers.get('mcp-session-id')!, 'mcp-protocol-version': '2025-11-25' };
  const ask = async (url: string, method: string, params: object): Promise<AskedTask> => {
    const asked = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
    const answer = await request(url, '/mcp', { method: 'POST', headers: { ...accept, ...session }, body: asked });
    return (JSON.parse(/^data: (\{.*)$/m.exec(answer)![1]!) as { readonly result: AskedTask }).result;
  };
  const call = { name: 'read', arguments: { path: 'notes.txt' }, task: { ttl: 60_000 } };
  const { taskId } = (await ask(one, 'tools/call', call)).task!;
  note({ type: 'record', id: taskId });
  const poll = async (url: string): Promise<void> => {
    for (let status = ''; !ENDED.includes(status);) {
      ({ status = '' } = await ask(url, 'tasks/get', { taskId }));
      // A call whose result is an error has failed as a task.
      if (ENDED.includes(status)) note({ type: 'ended', run: taskId, status: 'completed' });
    }
  };
  await allOf([poll(one), poll(other)]);
}

interface AskedTask {
  readonly task?: { readonly taskId: string };
  readonly status?: string;
}

/** An agent in the background, whose result the other server is asked for. */
async function agent(note: Note, [one, other]: Servers): Promise<void> {
  const body = { inputs: { question: 'read notes.txt' }, background: true };
  const { run_id: run } = await send<AskedAgent>(one, '/v1/agents/helper/invoke-iterative', body);
  const id = `inv_${run}`;
  note({ type: 'record', id });
  for (let isOpen = true; isOpen;) {
    const { status } = await get<AskedAgent>(other, `/v1/agents/helper/runs/${run}`);
    isOpen = status === 'in_progress';
    if (!isOpen) note({ type: 'record', id, status: 'completed' });
  }
}

/** A workflow in the background, whose steps the other server is asked for. */
async function workflow(note: Note, [one, other]: Servers): Promise<void> {
  const started = await send<AskedWorkflow>(one, '/v1/workflows/notes/execute', { background: true });
  const run = started.run_id;
  const id = `inv_${run}`;
  note({ type: 'record', id });
  for (let isOpen = true; isOpen;) {
    const { status, steps } = await get<AskedWorkflow>(other, `/v1/workflows/notes/runs/${run}`);
    for (const { output } of steps ?? []) if (typeof output === 'string') note({ type: 'item', run, text: output });
    isOpen = status === 'in_progress';
    if (!isOpen) note({ type: 'record', id, status: 'completed' });
  }
}

interface AskedWorkflow {
  readonly run_id: string;
  readonly status: string;
  readonly steps?: readonly { readonly output?: unknown }[];
}

/** The trace of a run, from both servers, while it runs. */
async function trace(note: Note, servers: Servers, random: Random): Promise<void> {
  const { id } = noteResponse(note, await send(servers[0], '/v1/responses', { input: task(random), background: true }));
  const poll = async (url: string): Promise<void> => {
    for (let status = ''; !ENDED.includes(status);) {
      // The run starts after its response.
      const found = await get<AskedTrace>(url, `/v1/traces/${id}`).catch(notFound);
      for (const { effect, ended_at: endedAt } of found?.steps.flatMap(({ work }) => work) ?? []) {
        note({ type: endedAt === null ? 'begun' : 'settled', run: id, effect });
      }
      status = found?.status ?? '';
      if (ENDED.includes(status)) note({ type: 'ended', run: id, status });
    }
  };
  await allOf(servers.map(poll));
}

interface AskedTrace {
  readonly status: string;
  readonly steps: readonly {
    readonly work: readonly { readonly effect: string; readonly ended_at: number | null }[];
  }[];
}

interface AskedAgent {
  readonly run_id: string;
  /** Absent: it has a result. */
  readonly status?: string;
}

/** The same message of Anthropic's API, with a key, at both servers, and a streamed one. */
async function message(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const headers = { 'idempotency-key': `message_${random()}` };
  const body = { model: 'play', max_tokens: 99, messages: [{ role: 'user', content: task(random) }] };
  for (const url of [one, other]) {
    const { id } = await send<{ readonly id: string }>(url, '/v1/messages', body, headers);
    note({ type: 'ended', run: id.replace('msg_', 'resp_'), status: 'completed' });
  }
  let run = '';
  await readEvents(one, '/v1/messages', { ...body, stream: true }, ({ message: begun, content_block: block }) => {
    run ||= String((begun as { readonly id: string } | undefined)?.id).replace('msg_', 'resp_');
    const { type, content } = (block ?? {}) as { readonly type?: string; readonly content?: readonly Text[] };
    if (type === 'mcp_tool_result') for (const { text } of content!) note({ type: 'item', run, text });
  });
}

interface Text {
  readonly text: string;
}

/** An answer in the protocols of both front ends: begun at one server, and continued at the other. */
async function frontEnd(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const id = `chat_${random()}`;
  const content = task(random);
  const ui = { id, messages: [{ id: 'm', role: 'user', parts: [{ type: 'text', text: content }] }] };
  const more = { runId: 'r', tools: [], context: [], state: {}, forwardedProps: {} };
  const agUi = { ...more, threadId: id, messages: [{ id: 'm', role: 'user', content }] };
  const noteResult = ({ toolCallId, output, content: result = output }: Event): void => {
    const run = /^call_([\da-f]{32})_/.exec(String(toolCallId))?.[1];
    if (run !== undefined && typeof result === 'string') note({ type: 'item', run: `resp_${run}`, text: result });
  };
  const path = random() < 0.5 ? '/v1/chat/ui' : '/v1/chat/ag-ui';
  const answer = readEvents(one, path, path.endsWith('ag-ui') ? agUi : ui, noteResult);
  const follow = async (): Promise<void> => {
    // The conversation begins after its request.
    for (let isOpen = true; isOpen;) {
      await readEvents(other, `${path}/${id}/stream`, undefined, noteResult).catch(notFound);
      isOpen = await Promise.race([answer.then(() => false), delay(5, true)]);
    }
  };
  await allOf([answer, follow()]);
}

/** Something that one server stores and the other one is asked for, and that is then deleted in the same way. */
async function storedThing(
  { note, servers: [one, other], deleted }: { note: Note; servers: Servers; deleted: Set<string> },
  { what, id, path }: { readonly what: StoredThing; readonly id: string; readonly path: string },
): Promise<void> {
  note({ type: 'stored', what, id });
  await get(other, path);
  deleted.add(id);
  const look = async (): Promise<void> => {
    while (await get(other, path).catch(notFound));
    note({ type: 'gone', what, id });
  };
  const remove = async (): Promise<void> => {
    await request(one, path, { method: 'DELETE' });
    note({ type: 'gone', what, id });
  };
  await allOf([remove(), look()]);
}

/** A note, which the other server finds as soon as it is there. */
async function remembered(note: Note, servers: Servers, random: Random, deleted: Set<string>): Promise<void> {
  const key = `note_${random()}`;
  const [one, other] = servers;
  const find = async (): Promise<string> => {
    for (;;) {
      const { data } = await get<{ readonly data: readonly { id: string; key: string | null }[] }>(other, NOTES);
      const found = data.find((item) => item.key === key);
      if (!found) continue;
      note({ type: 'stored', what: 'note', id: found.id });
      return found.id;
    }
  };
  const write = async (): Promise<void> => {
    const { id } = JSON.parse(
      await request(one, '/v1/memory', {
        method: 'PUT',
        headers: JSON_HEADERS,
        body: JSON.stringify({ key, text: 'the word is treadle', scope: 'tenant' }),
      }),
    ) as { readonly id: string };
    note({ type: 'stored', what: 'note', id });
  };
  const [id] = await Promise.all([find(), write()]);
  if (random() < 0.5) return;
  const path = `/v1/memory/${encodeURIComponent(id)}`;
  await storedThing({ note, servers, deleted }, { what: 'note', id, path });
}

const NOTES = '/v1/memory?type=note&limit=100';

async function conversation(note: Note, servers: Servers, random: Random, deleted: Set<string>): Promise<void> {
  const { id } = await send<{ readonly id: string }>(servers[0], '/v1/conversations', { metadata: { topic: 'notes' } });
  note({ type: 'stored', what: 'conversation', id });
  if (random() < 0.5) return;
  await storedThing({ note, servers, deleted }, { what: 'conversation', id, path: `/v1/conversations/${id}` });
}

/** A schedule, which starts its workflow at once. */
async function scheduled(note: Note, servers: Servers, random: Random, deleted: Set<string>): Promise<void> {
  const name = `s${Math.floor(random() * 1e15)}`;
  await send(servers[0], '/v1/schedules', { name, workflow: 'notes', every: 3_600 });
  note({ type: 'stored', what: 'schedule', id: name });
  const { run_id: run } = await send<Started>(servers[1], `/v1/schedules/${name}/run`, {});
  note({ type: 'record', id: `inv_${run}` });
  await storedThing({ note, servers, deleted }, { what: 'schedule', id: name, path: `/v1/schedules/${name}` });
}

interface Started {
  readonly run_id: string;
}

export const TRIGGER_SECRET = 'the secret of the trigger';

/** The same event at both servers, which start one run for it. */
async function triggered(note: Note, servers: Servers, random: Random): Promise<void> {
  const id = `event_${random()}`;
  const time = String(Math.floor(Date.now() / 1_000));
  const signature = createHmac('sha256', TRIGGER_SECRET).update(`${id}.${time}.{}`).digest('base64');
  const headers = { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': `v1,${signature}` };
  const fire = async (url: string): Promise<void> => {
    const { run_id: run } = await send<Started>(url, '/v1/triggers/deploy', {}, headers);
    note({ type: 'record', id: `inv_${run}` });
  };
  await allOf(servers.map(fire));
}

/** A fork of a run that has ended, made by the other server. */
async function forked(note: Note, [one, other]: Servers, random: Random): Promise<void> {
  const { id } = noteResponse(note, await send(one, '/v1/responses', { input: task(random) }));
  const fork = await send<ToldRun>(other, `/v1/runs/${id}/fork`, { at: 0 });
  note({ type: 'run', id: fork.id, status: fork.status, entries: fork.entries });
  const read = await get<ToldRun>(one, `/v1/runs/${fork.id}`);
  note({ type: 'run', id: read.id, status: read.status, entries: read.entries });
}

/** What the runs of both servers did, as sums. */
async function counted(note: Note, servers: Servers, random: Random): Promise<void> {
  noteResponse(note, await send(servers[0], '/v1/responses', { input: task(random) }));
  for (const url of servers) {
    const { loop } = await get<{ readonly loop: { readonly runs: { readonly completed?: number } } }>(url, SUMS);
    note({ type: 'counted', completed: loop.runs.completed ?? 0 });
  }
}

const SUMS = '/v1/metrics/tools';

/** Notes the facts in the events of a response that are not stored as events. */
function eventNoter(note: Note): (event: Event) => void {
  let id = '';
  return (event) => {
    const { type, response, item } = event as { type: string; response?: Response; item?: Item };
    if (response) ({ id } = noteResponse(note, response));
    if (type !== 'response.output_item.done' || !item) return;
    for (const text of [item.arguments, ...(item.content ?? []).map((part) => part.text)]) {
      if (text) note({ type: 'item', run: id, text });
    }
  };
}

interface Item {
  readonly arguments?: string;
  readonly content?: readonly { readonly text?: string }[];
}

function noteResponse(note: Note, response: Response): Response {
  const { id, status, output } = response;
  note(ENDED.includes(status) ? { type: 'response', id, status, output } : { type: 'response', id });
  return response;
}

function task(random: Random): string {
  return TASKS[Math.floor(random() * TASKS.length)]!;
}

/** Waits for all of them, also if one fails: the others may still be told something. */
async function allOf(work: readonly Promise<void>[]): Promise<void> {
  await Promise.allSettled(work);
  await Promise.all(work);
}

class Refused extends Error {
  readonly status: number;
  constructor(status: number, text: string) {
    super(text);
    this.status = status;
  }
}

function notFound(error: unknown): undefined {
  if (!(error instanceof Refused && error.status === 404)) throw error;
}

async function request(url: string, path: string, init?: RequestInit): Promise<string> {
  const answer = await fetch(url + path, init);
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, text);
  return text;
}

async function get<T = Response>(url: string, path: string): Promise<T> {
  return JSON.parse(await request(url, path)) as T;
}

async function send<T = Response>(
  url: string,
  path: string,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): Promise<T> {
  const init = { method: 'POST', headers: { ...JSON_HEADERS, ...headers }, body: JSON.stringify(body) };
  return JSON.parse(await request(url, path, init)) as T;
}

/** Reads server-sent events until the stream ends. Rejects if it is cut. */
async function readEvents(
  url: string,
  path: string,
  body: object | undefined,
  onEvent: (event: Event) => void,
): Promise<void> {
  const post = body && { method: 'POST', body: JSON.stringify(body) };
  const answer = await fetch(url + path, { ...post, headers: { ...JSON_HEADERS, accept: 'text/event-stream' } });
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  const read = frameReader((frame) => {
    const data = /^data: (\{.*)$/m.exec(frame)?.[1];
    if (data !== undefined) onEvent(JSON.parse(data) as Record<string, unknown>);
  });
  for await (const chunk of answer.body!.pipeThrough(new TextDecoderStream())) read(chunk);
}
