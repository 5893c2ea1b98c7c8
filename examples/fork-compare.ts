/** What would the model have done with another result? Run it: npm run example fork-compare */
import { diffRuns, forkRun, memoryJournal, runLoop, tool } from '@treadle/core';
import { demo } from '@treadle/models';

const weather = tool({
  name: 'get_weather',
  description: 'Current weather for a city',
  input: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  effect: 'pure',
  execute: ({ city }) => `12 degrees and rain in ${String(city)}`,
});

const journal = memoryJournal(); // or sqliteStore('runs.db') of @treadle/store
const options = { model: demo(), tools: [weather], journal };
const original = await runLoop({ ...options, runId: 'original', input: 'What is the weather in Oslo?' });

// A copy of the run up to the result of its first call, with another result. The original run does not change.
const entries = await journal.read('original');
const at = entries.findIndex(({ event }) => event.type === 'tool-settled');
const changes = { results: { 't1.tool.0': '30 degrees and sun in Oslo' } };
const forkId = await forkRun({ journal, runId: 'original', at, changes });
const fork = await runLoop({ ...options, runId: forkId }); // calls the model again, but no tool

const { same, rest } = diffRuns(entries, await journal.read(forkId));
console.log(`The runs have the first ${same} entries in common, and differ in ${rest.length}:`);
for (const { a, b } of rest) console.log(`  ${a?.event.type ?? '-'} | ${b?.event.type ?? '-'}`);
console.log(
  'Original:',
  original.text.split('\n').find((line) => line.includes('degrees')),
);
console.log(
  'Fork:    ',
  fork.text.split('\n').find((line) => line.includes('degrees')),
);
