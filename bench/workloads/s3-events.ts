import { ask, count, DELTA } from '../serving/client.ts';
import { SERVERS, type FrontMeasurement } from './served.ts';
import { repeat, type Values, type Workload } from './workload.ts';

const BURST = 1_000;
const STREAMS = 50;
const PACED = 50;
const PACE_MS = 20;

/** Streams until the time has passed, and returns the CPU time of the server per event. */
async function cpuPerEvent(
  { front, warmUpMs, measureMs }: FrontMeasurement,
  model: string,
  atOnce: number,
  deltas: number,
): Promise<Values> {
  let events = 0;
  const stream = async (): Promise<void> => {
    const { body } = await ask(front, { model, stream: true }).answer;
    const received = count(body, DELTA);
    if (received !== deltas) throw new Error(`${received} of ${deltas} deltas delivered`);
    events += count(body, 'event: ');
  };
  const round = (): Promise<unknown> => Promise.all(Array.from({ length: atOnce }, stream));
  await repeat(round, warmUpMs * 2);
  events = 0;
  const before = await front.usage();
  await repeat(round, measureMs * 2);
  return { cpu: ((await front.usage()).cpu - before.cpu) / events };
}

function events(id: string, title: string, [model, atOnce, deltas]: [string, number, number]): Workload {
  return {
    id,
    title,
    metrics: [{ id: 'cpu', title: 'CPU per event', unit: 'us', digits: 1 }],
    mode: 'stream',
    where: 'served',
    only: SERVERS,
    check: [],
    served: {
      check: ['stream'],
      scripts: [model],
      measure: (stage) => cpuPerEvent(stage, model, atOnce, deltas),
    },
  };
}

export const S3: readonly Workload[] = [
  events('S3-burst', `${BURST.toLocaleString('en-US')} deltas in a burst`, [`text:${BURST}`, 1, BURST]),
  events('S3-paced', `${STREAMS} streams at once, a delta each ${PACE_MS} ms, one write per delta`, [
    `text:${PACED}:0:${PACE_MS}`,
    STREAMS,
    PACED,
  ]),
];
