import { OWN_TOOLS, type FrontCheck } from '../serving/check.ts';
import { ask, type Ask } from '../serving/client.ts';
import { SERVERS } from './served.ts';
import { repeat, type Workload } from './workload.ts';

const AT_ONCE = 10;
const TEXT = 'text:20';
const ROUND = 'chain:1';

/** The CPU time of the server per response, with several concurrent requests. */
function responses(
  id: string,
  title: string,
  { ask: what, check, only = SERVERS }: { ask: Ask; check: FrontCheck; only?: Workload['only'] & {} },
): Workload {
  return {
    id,
    title: `${title}, ${AT_ONCE} at once`,
    metrics: [{ id: 'cpu', title: 'CPU per response', unit: 'us', digits: 0 }],
    mode: what.stream ? 'stream' : 'whole',
    where: 'served',
    only,
    check: [],
    served: {
      check: [check],
      scripts: [what.model],
      async measure({ front, warmUpMs, measureMs }) {
        const round = (): Promise<unknown> =>
          Promise.all(Array.from({ length: AT_ONCE }, () => ask(front, what).answer));
        await repeat(round, warmUpMs * 3);
        const before = await front.usage();
        const answers = (await repeat(round, measureMs * 2)) * AT_ONCE;
        return { cpu: ((await front.usage()).cpu - before.cpu) / answers };
      },
    },
  };
}

export const S2: readonly Workload[] = [
  responses('S2-whole', 'one turn, not streaming', { ask: { model: TEXT, stream: false }, check: 'whole' }),
  responses('S2-stream', 'one turn of 20 deltas, streaming', { ask: { model: TEXT, stream: true }, check: 'stream' }),
  responses('S2-tools', 'a call that the server executes, and the answer, streaming', {
    ask: { model: ROUND, stream: true, tools: OWN_TOOLS },
    check: 'tools',
    only: ['treadle-server', 'treadle-server-stored'],
  }),
];
