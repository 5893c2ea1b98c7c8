import {
  ask,
  askChat,
  CHAT_DELTA,
  count,
  DELTA,
  followChat,
  type Answer,
  type PendingAnswer,
} from '../serving/client.ts';
import type { OpenFront } from '../serving/front.ts';
import { part } from './s1-first-byte.ts';
import type { FrontMeasurement, Served } from './served.ts';
import { repeat, type Metric, type Values, type Workload } from './workload.ts';

const SHORT = 'text:20';
const DELTAS = 1_000;
const LONG = `text:${DELTAS}`;

/** The streams that are compared, and what each of their pieces of text contains. */
const STREAMS = {
  responses: { mark: DELTA, open: (front: OpenFront, model: string) => ask(front, { model, stream: true }) },
  background: {
    mark: DELTA,
    open: (front: OpenFront, model: string) => ask(front, { model, stream: true, background: true }),
  },
  chat: { mark: CHAT_DELTA, open: (front: OpenFront, model: string) => openChat(front, model, 'cancel') },
  continued: { mark: CHAT_DELTA, open: (front: OpenFront, model: string) => openChat(front, model, 'continue') },
} as const;
const NAMES = ['responses', 'background', 'chat', 'continued'] as const;
type Name = (typeof NAMES)[number];

function openChat(front: OpenFront, model: string, onDisconnect: 'cancel' | 'continue'): PendingAnswer {
  return askChat(front, { model, onDisconnect });
}

async function streamed(front: OpenFront, name: Name, model: string): Promise<Answer> {
  const { mark, open } = STREAMS[name];
  const answer = await open(front, model).answer;
  const [received, sent] = [count(answer.body, mark), Number(model.split(':')[1])];
  if (received !== sent) throw new Error(`${name}: ${received} of ${sent} deltas delivered`);
  return answer;
}

/** One request at a time, alternating between the streams, so that noise affects all. */
async function firstDeltas({ front, warmUpMs, measureMs }: FrontMeasurement): Promise<Values> {
  const answers: Record<Name, Answer[]> = { responses: [], background: [], chat: [], continued: [] };
  const round = async (): Promise<void> => {
    for (const name of NAMES) answers[name].push(await streamed(front, name, SHORT));
  };
  await repeat(round, warmUpMs * 2);
  for (const name of NAMES) answers[name].length = 0;
  await repeat(round, measureMs * 4);
  const median = (name: Name): number => part(answers[name], 'firstDeltaMs', 0.5);
  const responses = median('responses');
  const values: Record<string, number> = { responses };
  for (const name of ['background', 'chat', 'continued'] as const) {
    values[name] = median(name);
    values[`${name}Added`] = values[name] - responses;
  }
  return values;
}

async function cpuPerDelta({ front, warmUpMs, measureMs }: FrontMeasurement): Promise<Values> {
  for (const name of NAMES) await repeat(() => streamed(front, name, LONG), warmUpMs);
  const values: Record<string, number> = {};
  for (const name of NAMES) {
    const before = await front.usage();
    const streams = await repeat(() => streamed(front, name, LONG), measureMs * 2);
    values[name] = ((await front.usage()).cpu - before.cpu) / (streams * DELTAS);
  }
  return values;
}

/** A client that reads a whole conversation again, and one that has everything but the last event. */
async function reconnects({ front, warmUpMs, measureMs }: FrontMeasurement): Promise<Values> {
  const { body } = await streamed(front, 'continued', LONG);
  const id = /"conversation_id":"(\w+)"/.exec(body.toString())![1]!;
  const events = count(body, 'data: ');
  const values: Record<string, number> = {};
  for (const [name, after] of [
    ['whole', 0],
    ['last', events - 1],
  ] as const) {
    const answers: Answer[] = [];
    const read = async (): Promise<void> => {
      const answer = await followChat(front, id, after).answer;
      const received = count(answer.body, 'data: ');
      if (received !== events - after) throw new Error(`${received} of ${events - after} events delivered`);
      answers.push(answer);
    };
    await repeat(read, warmUpMs);
    answers.length = 0;
    const before = await front.usage();
    const times = await repeat(read, measureMs);
    const cpu = ((await front.usage()).cpu - before.cpu) / times;
    values[`${name}Ms`] = part(answers, 'wholeMs', 0.5);
    values[`${name}Cpu`] = name === 'whole' ? cpu / events : cpu;
  }
  return values;
}

const ms = (id: string, title: string): Metric => ({ id, title, unit: 'ms', digits: 2 });
const us = (id: string, title: string, digits = 1): Metric => ({ id, title, unit: 'us', digits });

function chat(
  id: string,
  { title, metrics, scripts, measure }: Pick<Workload, 'title' | 'metrics'> & Pick<Served, 'scripts' | 'measure'>,
): Workload {
  return {
    id,
    title,
    metrics,
    mode: 'stream',
    where: 'served',
    // A conversation is always stored.
    only: ['treadle-server-stored'],
    check: [],
    served: { check: ['stream'], scripts, measure },
  };
}

export const S5: readonly Workload[] = [
  chat('S5-first', {
    title: 'time to the first delta of a chat, of a response and of a background response, one stream at a time',
    metrics: [
      ms('responses', 'first delta, response'),
      ms('background', 'first delta, background response'),
      ms('backgroundAdded', 'first delta, background response, added to the response'),
      ms('chat', 'first delta, chat'),
      ms('chatAdded', 'first delta, chat, added to the response'),
      ms('continued', 'first delta, chat with continue'),
      ms('continuedAdded', 'first delta, chat with continue, added to the response'),
    ],
    scripts: [SHORT],
    measure: firstDeltas,
  }),
  chat('S5-burst', {
    title: `${DELTAS.toLocaleString('en-US')} deltas in a burst`,
    metrics: [
      us('responses', 'CPU per delta, response'),
      us('background', 'CPU per delta, background response'),
      us('chat', 'CPU per delta, chat'),
      us('continued', 'CPU per delta, chat with continue'),
    ],
    scripts: [LONG],
    measure: cpuPerDelta,
  }),
  chat('S5-reconnect', {
    title: `reading a chat of ${DELTAS.toLocaleString('en-US')} deltas again`,
    metrics: [
      ms('wholeMs', 'all events'),
      us('wholeCpu', 'all events, CPU per event'),
      ms('lastMs', 'the last event'),
      us('lastCpu', 'the last event, CPU', 0),
    ],
    scripts: [LONG],
    measure: reconnects,
  }),
];
