/** A process is killed in the middle of a run, and another one finishes it. Run it: npm run example crash-resume */
import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runLoop, tool } from '@treadle/core';
import { demo } from '@treadle/models';
import { sqliteStore } from '@treadle/store';

const folder = process.argv[2] ?? mkdtempSync(path.join(tmpdir(), 'crash-'));
const isChild = process.argv[2] !== undefined;

const charge = tool({
  name: 'charge_card',
  description: 'Charges the card of the customer',
  // The default effect is 'once': it is never repeated after a crash.
  execute: () => {
    appendFileSync(path.join(folder, 'charges.txt'), 'charged 40 EUR\n');
    return 'charged 40 EUR';
  },
});
const receipt = tool({
  name: 'send_receipt',
  description: 'Sends the receipt to the customer',
  effect: 'idempotent', // it may be repeated
  execute: () => {
    if (isChild) process.kill(process.pid, 'SIGKILL'); // a crash, such as a power failure
    return 'sent the receipt';
  },
});

const journal = sqliteStore(path.join(folder, 'runs.db'));
const order = { model: demo(), tools: [charge, receipt], journal, runId: 'order-7' };
const input = 'Charge the card, then send the receipt';

if (isChild) await runLoop({ ...order, input });
else {
  const { signal } = spawnSync(process.execPath, [...process.execArgv, import.meta.filename, folder]);
  console.log(`The first process was ended by ${signal}.`);
  // The same options start a run, resume it, or return its result, whatever has happened to it.
  const result = await runLoop({ ...order, input, resume: 'auto' });
  console.log(`The run ended as ${result.outcome?.type} after ${result.turns} turns.`);
  const charges = readFileSync(path.join(folder, 'charges.txt'), 'utf8').trimEnd().split('\n');
  console.log(`The card was charged ${charges.length} time(s).`);
}

await journal.close();
if (!isChild) rmSync(folder, { recursive: true });
