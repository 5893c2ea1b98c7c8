import { runLoop, userText, type Event, type JournalEntry } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { messageEntry, startEntry } from '../journal/entries.ts';
import { memoryOn } from '@treadle/core/memory';
import { countNotedRuns, type Store } from '@treadle/store';

const LONG = 'A long text that several entries, requests and responses contain. '.repeat(40);
const ODD = 'a\u0000b \ud800 "quoted" \\ é 한국';

/** Stores something of every kind, with all that is hard to store. Another time: with other names. */
export async function fillStore(store: Store, time = ''): Promise<void> {
  store.notices.enable(['completed', 'failed']);
  await addRuns(store, time);
  await addRequests(store, time);
  await addConversations(store, time);
  await store.streams.append(`stream${time}`, 1, [{ text: ODD }, { text: LONG }]);
  await store.streams.append(`stream${time}`, 10, [{ at: 10 }]);
  const request = await store.inbox.add(`run${time}`, { type: 'steer', text: ODD });
  await store.inbox.take(request);
  await store.inbox.reply(request, { ok: true });
  await store.inbox.add(`run${time}`, { type: 'cancel' });
  await addAccounts(store, time);
  await countNotedRuns(store, { limit: 2, keepsMemory: true });
  await addMemories(store, time);
}

async function addRuns(store: Store, time: string): Promise<void> {
  const history = Array.from({ length: 12 }, (_, index) => userText(`${index} ${LONG} ${ODD}`));
  await runLoop({ model: scriptedModel(['Hello.']), journal: store, runId: `run${time}`, input: history });
  await store.blobs.put(`run${time}`, `${ODD} ${LONG.repeat(30)}`);
  await store.blobs.put(`run${time}`, { bytes: new Uint8Array([0, 255, 1]), mediaType: 'image/png' });
  await runLoop({ model: scriptedModel([LONG]), journal: store, runId: `same${time}`, input: history.slice(0, 9) });
  await store.blobs.put(`same${time}`, `${ODD} ${LONG.repeat(30)}`);
  await store.writeSnapshot(`same${time}`, { seq: 2, state: { odd: ODD } });
  const facts: Partial<Extract<Event, { type: 'run-started' }>> = {
    principal: { tenant: `acme\u0000${time}`, subject: 'ann', scopes: [] },
    session: 'session 1',
    labels: { 'x\u00ff': 'y', env: 'prod' },
  };
  // Sleeps, and has more entries than a page.
  const many = Array.from({ length: 1_200 }, (_, index): JournalEntry => messageEntry(index + 1));
  const last: JournalEntry = { ...messageEntry(1_201, { status: 'paused' }), wakeAt: 9e12 };
  const lease = await store.acquire(`many${time}`);
  await store.append(`many${time}`, [startEntry(`many${time}`, facts), ...many, last], lease);
  await lease.release();
  // Its driver was lost.
  const lost = await store.acquire(`lost\u0000${time}`);
  await store.append(`lost\u0000${time}`, [startEntry(`lost\u0000${time}`)], lost);
  await store.releaseRun(`lost\u0000${time}`, { force: true });
}

async function addMemories(store: Store, time: string): Promise<void> {
  const memory = memoryOn({ port: store.memory, now: () => 7 });
  const note = { tenant: `acme\u0000${time}`, subject: 'ann', content: `Café ${ODD}`, tags: [ODD.toWellFormed()] };
  await memory.remember({ ...note, key: 'place', scope: 'user' });
  await memory.remember({ ...note, key: 'gone', scope: 'tenant' });
  const [first] = await store.memory.unembedded('embedder', 1);
  await store.memory.addVectors('embedder', [{ row: first!.row, vector: Int8Array.of(-127, 0, 5) }]);
  await store.memory.forget({ tenant: `other${time}`, session: ODD, until: 5 });
}

async function addRequests(store: Store, time: string): Promise<void> {
  const input = Array.from({ length: 20 }, (_, index) => ({ role: 'user', content: `${index} ${LONG}` }));
  const times = { createdAt: 1, updatedAt: 2 };
  for (const [index, run] of [`run${time}`, `same${time}`, `later${time}`].entries()) {
    const request = { model: 'main', odd: ODD, input: input.slice(0, 20 - index) };
    const id = `resp_${index}${time}`;
    const record = { id, kind: 'response', tenant: 'acme', runId: run, status: 'in_progress', ...times, request };
    const key = { key: `key ${ODD.toWellFormed()} ${index}`, digest: 'digest', expiresAt: 9e12 };
    const more = index === 0 ? { keptWith: `resp_1${time}` } : {};
    await store.requests.create(
      index === 2 ? { ...record, expiresAt: 9e12, previous: 'resp_1' } : record,
      [{ ...key, key: `${key.key}${time}`, ...more }],
      request.input,
    );
  }
  await store.requests.finish(`resp_0${time}`, { status: 'completed', response: { output: LONG }, at: 5 });
  await store.requests.markWaiting(`resp_1${time}`);
}

async function addConversations(store: Store, time: string): Promise<void> {
  const { conversations } = store;
  const [id, tenant] = [`conv${time}`, 'acme'];
  await conversations.create({
    id,
    tenant,
    title: 'Café in 서울',
    createdAt: 1,
    metadata: { a: ODD.toWellFormed() },
    instructions: ODD.toWellFormed(),
  });
  await conversations.extend(id, { response: `resp_0${time}`, text: 'The weather in Zürich', at: 2 });
  await conversations.extend(id, { response: `resp_1${time}`, head: `resp_0${time}`, text: 'Umbrellas', at: 3 });
  // A branch has copies of the first responses, and is ordered before what it was taken from.
  const branch = { id: `branch${time}`, after: `resp_0${time}` };
  await conversations.extend(id, { response: `resp_2${time}`, head: `resp_1${time}`, text: 'Sunshine', at: 4, branch });
  await conversations.create({ id: `empty${time}`, tenant: 'bolt', title: '', createdAt: 5 });
}

async function addAccounts(store: Store, time: string): Promise<void> {
  const about = { runId: 'run', effect: 'call-tool', name: 't', context: undefined } as const;
  await store.budgets.setLimits(`budget\u0000${time}`, { calls: 5, tokens: 1_000 });
  const ledger = await store.budgets.ledger([`budget\u0000${time}`]);
  await ledger.reserve(`run${time}/t1.tool.0`, { calls: 1 }, about);
  await ledger.reserve(`run${time}/t1.tool.1`, { calls: 1 }, about);
  await ledger.settle(`run${time}/t1.tool.1`, { calls: 1 });
  await store.rates.add(`ann\u0000${time}`, Date.now(), 2, 5);
  await store.secretKey(`cursors${time}`);
  await store.schedules.add({
    tenant: 'acme',
    name: `nightly\u0000${time}`,
    definition: { a: ODD },
    state: [1],
    dueAt: 5,
  });
  await store.schedules.add({ tenant: 'acme', name: `never${time}`, definition: null, state: null });
  await store.keptProcesses.keep(`run${time}`, [{ pid: 4_711, start: '1', place: 'here' } as never]);
}

/** What the fillings are found by: all that can be read through the ports. */
export async function readFullStore(store: Store, time = ''): Promise<unknown> {
  const { conversations, requests, streams } = store;
  const runs = await store.list({ limit: Infinity });
  const search = async (text: string): Promise<readonly string[]> =>
    (await conversations.list({ tenant: 'acme', search: text, limit: 100 })).map(({ id }) => id);
  return {
    runs,
    entries: await Promise.all(runs.map(({ runId }) => store.read(runId))),
    labelled: (await store.list({ labels: { env: 'prod' } })).map(({ runId }) => runId),
    snapshot: await store.readSnapshot(`same${time}`),
    blobs: await Promise.all(
      (await store.blobs.list(`run${time}`)).map((id) => store.blobs.read(`run${time}`, id, 0, Infinity)),
    ),
    requests: await Promise.all([0, 1, 2].map((index) => requests.get('acme', `resp_${index}${time}`))),
    undriven: await requests.undriven(1),
    unfinished: await requests.unfinished(),
    key: await requests.findKey('acme', `key ${ODD.toWellFormed()} 0${time}`, 5),
    conversations: await conversations.list({ tenant: 'acme', limit: 100 }),
    responses: await Promise.all([`conv${time}`, `branch${time}`].map((id) => conversations.responses(id))),
    found: await Promise.all(['cafe', '서울', 'zurich weather', 'umbrel', 'sun', 'nothing'].map(search)),
    stream: await streams.read(`stream${time}`, 0),
    last: await streams.last(`stream${time}`),
    secret: await store.secretKey(`cursors${time}`),
  };
}

/** The same for the tables that stores of earlier versions do not have. */
export async function readLaterTables(store: Store, time = ''): Promise<unknown> {
  const { memory, metrics, schedules } = store;
  const owner = { tenant: `acme\u0000${time}` };
  const near = { model: 'embedder', vector: Int8Array.of(1, 1, 1), limit: 9 };
  return {
    items: await memory.list({ ...owner, limit: 99 }),
    found: await memory.matching(owner, 'CAFE', 9),
    near: await memory.nearest({}, near),
    metrics: await metrics.read({}),
    schedules: await schedules.list(),
  };
}
