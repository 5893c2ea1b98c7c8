import { ask, type Answer } from '../serving/client.ts';
import { SERVERS, type FrontMeasurement } from './served.ts';
import { repeat, type Values, type Workload } from './workload.ts';

const SCRIPT = 'text:20';

const ms = (id: string, title: string) => ({ id, title, unit: 'ms', digits: 2 });

/** One request at a time, alternating between the server and the model, so that noise affects both. */
async function times(
  { front, provider, warmUpMs, measureMs }: FrontMeasurement,
  stream: boolean,
): Promise<{ readonly ours: readonly Answer[]; readonly direct: readonly Answer[] }> {
  const [ours, direct]: [Answer[], Answer[]] = [[], []];
  const round = async (): Promise<void> => {
    ours.push(await ask(front, { model: SCRIPT, stream }).answer);
    direct.push(await ask({ baseURL: provider, fields: {} }, { model: SCRIPT, stream }).answer);
  };
  await repeat(round, warmUpMs * 2);
  ours.length = direct.length = 0;
  await repeat(round, measureMs * 2);
  return { ours, direct };
}

export function part(answers: readonly Answer[], of: keyof Omit<Answer, 'body'>, share: number): number {
  const sorted = answers.map((answer) => answer[of]).toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

const streamed: Workload = {
  id: 'S1-stream',
  title: 'time to the first byte and to the first delta, one stream at a time',
  metrics: [
    ms('byte', 'first byte'),
    ms('byte95', 'first byte, 95th percentile'),
    ms('byteAdded', 'first byte, added to direct'),
    ms('delta', 'first delta'),
    ms('delta95', 'first delta, 95th percentile'),
    ms('deltaAdded', 'first delta, added to direct'),
  ],
  mode: 'stream',
  where: 'served',
  only: ['direct', ...SERVERS],
  check: [],
  served: {
    check: ['stream'],
    scripts: [SCRIPT],
    async measure(stage): Promise<Values> {
      const { ours, direct } = await times(stage, true);
      const byte = part(ours, 'firstByteMs', 0.5);
      const delta = part(ours, 'firstDeltaMs', 0.5);
      return {
        byte,
        byte95: part(ours, 'firstByteMs', 0.95),
        byteAdded: byte - part(direct, 'firstByteMs', 0.5),
        delta,
        delta95: part(ours, 'firstDeltaMs', 0.95),
        deltaAdded: delta - part(direct, 'firstDeltaMs', 0.5),
      };
    },
  },
};

const whole: Workload = {
  id: 'S1-whole',
  title: 'time to the answer, one request at a time, not streaming',
  metrics: [
    ms('answer', 'answer'),
    ms('answer95', 'answer, 95th percentile'),
    ms('answerAdded', 'answer, added to direct'),
  ],
  mode: 'whole',
  where: 'served',
  only: ['direct', ...SERVERS],
  check: [],
  served: {
    check: ['whole'],
    scripts: [SCRIPT],
    async measure(stage): Promise<Values> {
      const { ours, direct } = await times(stage, false);
      const answer = part(ours, 'wholeMs', 0.5);
      return {
        answer,
        answer95: part(ours, 'wholeMs', 0.95),
        answerAdded: answer - part(direct, 'wholeMs', 0.5),
      };
    },
  },
};

export const S1: readonly Workload[] = [streamed, whole];
