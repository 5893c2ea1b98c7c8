import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { ATTACKS, type Attack } from '../attacks/attacks.ts';
import { node } from '../measure/pinned.ts';
import type { Workload } from './workload.ts';

const ATTACKER = new URL('../attacks/main.ts', import.meta.url).pathname;
const PROBE_EVERY_MS = 5;

/** One client misbehaves, and another one asks for `/healthz`. */
export const ATTACK_ROWS: readonly Workload[] = ATTACKS.map(rowOf);

function rowOf({ id, title, scripts }: Attack): Workload {
  return {
    id: `attacks-${id}`,
    title,
    metrics: [
      { id: 'latency', title: 'worst /healthz', unit: 'ms', digits: 0 },
      { id: 'busy', title: 'longest turn of the event loop', unit: 'ms', digits: 0 },
      { id: 'memory', title: 'peak memory', unit: 'MB', digits: 0 },
    ],
    mode: 'stream',
    where: 'served',
    only: ['treadle-server-stored'],
    check: [],
    served: {
      check: ['stream'],
      scripts,
      attacked: true,
      async measure({ front }) {
        await front.usage();
        const probe = startProbe(front.baseURL);
        await attackBy(id, front.baseURL);
        const latency = await probe.stop();
        const { longestTurn, peakRss } = await front.usage();
        return { latency, busy: longestTurn, memory: peakRss / 1e6 };
      },
    },
  };
}

async function attackBy(id: string, baseURL: string): Promise<void> {
  const [command, args] = node(0, ['--disable-warning=ExperimentalWarning', ATTACKER, id, baseURL]);
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const [errors, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  if (code !== 0) throw new Error(`the attack failed: ${/Error: .*/.exec(errors)?.[0] ?? errors}`);
}

/** Asks for `/healthz` again and again. `stop` resolves with the longest time that an answer took, in milliseconds. */
function startProbe(baseURL: string): { readonly stop: () => Promise<number> } {
  const url = new URL('/healthz', baseURL);
  const agent = new Agent({ keepAlive: true });
  let isStopped = false;
  let worst = 0;
  async function ask(): Promise<void> {
    const began = performance.now();
    const [answer] = await once(get(url, { agent }), 'response');
    answer.resume();
    await once(answer, 'end');
    worst = Math.max(worst, performance.now() - began);
  }
  const probing = (async () => {
    while (!isStopped) {
      await ask();
      await sleep(PROBE_EVERY_MS);
    }
  })();
  return {
    async stop() {
      isStopped = true;
      await probing;
      agent.destroy();
      return worst;
    },
  };
}
