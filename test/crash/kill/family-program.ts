/**
 * A run with a child run that pays once: `node --conditions=treadle-source family-program.ts STORE LEDGER wait|finish`. It
 * starts or resumes the run, and prints its text or the code of the error. With `wait` the child run never ends after it
 * has paid: the process prints "paid" and has to be killed.
 */
import { appendFileSync } from 'node:fs';
import { agentTool, runLoop, tool, TreadleError } from '@treadle/core';
import { openStore } from '@treadle/store';
import { keyedModel } from '../keyed-model.ts';

const [url, ledger, mode] = process.argv.slice(2) as [string, string, 'wait' | 'finish'];

const print = (line: string): void => void process.stdout.write(`${line}\n`);

const pay = tool({
  name: 'pay',
  description: 'Pays',
  execute(_, { key }) {
    appendFileSync(ledger, `${key}\n`);
    return 'paid';
  },
});
const check = tool({
  name: 'check',
  description: 'Checks',
  effect: 'pure',
  async execute() {
    if (mode === 'finish') return 'checked';
    print('paid');
    return new Promise(() => setInterval(() => {}, 1_000));
  },
});
const helper = agentTool({
  name: 'helper',
  description: 'Pays',
  model: keyedModel({
    't1.model.0': { calls: [['pay', {}]] },
    't2.model.0': { calls: [['check', {}]] },
    't3.model.0': 'It is paid.',
  }),
  tools: [pay, check],
});
const model = keyedModel({ 't1.model.0': { calls: [['helper', { task: 'Pay.' }]] }, 't2.model.0': 'All is paid.' });

const journal = await openStore(url);
const started = (await journal.read('bill')).length > 0;
try {
  const options = { model, tools: [helper], journal, runId: 'bill' };
  const { text } = await runLoop({ ...options, ...(!started && { input: 'Pay the bill.' }) });
  print(text);
} catch (error) {
  print(error instanceof TreadleError ? error.code : String(error));
}
await journal.close();
