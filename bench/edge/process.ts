/**
 * The other processes of the measurement: `node process.ts broker PORT`, or `node process.ts devices URL COUNT FOLDER`: devices whose
 * tool answers at once.
 */
import { join } from 'node:path';
import { openBroker } from '@treadle/edge';
import { openLedger, startAgent, type Described, type Runner } from '@treadle/edge/device';

const [role, place = '', count = '1', folder = ''] = process.argv.slice(2);
const parameters = { type: 'object', properties: { text: { type: 'string' } } };
const described: Described = { tools: [{ name: 'echo', description: 'Answers at once', parameters }], notices: [] };
const runner: Runner = {
  describe: async () => described,
  reload: async () => described,
  call: async ({ parameters: { text } }) => ({ status: 'success', result: text, stderr: '', exit_code: 0 }),
  operate: async () => ({}),
  close: async () => {},
};

if (role === 'broker') await openBroker({ prefix: 'treadle', port: Number(place) });
else {
  for (let number = 0; number < Number(count); number++) {
    const id = `d${number}`;
    const ledger = await openLedger({ folder: join(folder, id), maxResults: 1_000_000 });
    await startAgent({ id, prefix: 'treadle', broker: { url: place }, ledger, runner, maxQueued: 10_000 });
  }
}
process.stdout.write('ready\n');
