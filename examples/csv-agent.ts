/** An agent with a typed answer. Its first answer is rejected. Run it: npm run example csv-agent */
import { defineAgent, executeAgent } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { z } from 'zod';

interface Question {
  readonly csv: string;
  readonly text: string;
}

const csv = 'region,revenue\nnorth,400\nsouth,250\nnorth,300\nwest,50\n';
const rowsOf = (text: string): string[][] =>
  text
    .trim()
    .split('\n')
    .map((line) => line.split(','));

const Report = z.object({
  best: z.string().describe('The region that earned most'),
  regions: z.array(z.object({ name: z.string(), revenue: z.number() })).min(1),
});

// A scripted model, so that the example runs offline. For a real one, use openaiChat({ model }) of @treadle/models.
const north = { name: 'north', revenue: 700 };
const south = { name: 'south', revenue: 250 };
const west = { name: 'west', revenue: 50 };
const model = scriptedModel([
  { calls: [{ name: 'list_columns' }, { name: 'read_rows', arguments: { from: 0, count: 3 } }] },
  { calls: [{ name: 'report', arguments: { best: 'north', regions: [north, south] } }] },
  { calls: [{ name: 'submit' }] },
  { calls: [{ name: 'read_rows', arguments: { from: 3, count: 3 } }] },
  { calls: [{ name: 'report', arguments: { best: 'north', regions: [north, south, west] } }, { name: 'submit' }] },
]);

const analyst = defineAgent({
  name: 'csv-analyst',
  description: 'Answers questions about a CSV file',
  model,
  prompts: {
    system: 'You analyse a CSV file. Look at it with the tools, then report.',
    user: ({ text }: Question) => text,
    error: ({ message }, { attempt, maxAttempts }) =>
      `${message}. Look again: attempt ${attempt + 1} of ${maxAttempts}.`,
  },
  state: { run: { rowsSeen: 0 } },
  tools: {
    helpers: [
      {
        definition: { name: 'list_columns', description: 'The names of the columns', effect: 'pure' },
        handler: (_, { agentInput }) => rowsOf(agentInput.csv)[0],
      },
      {
        definition: {
          name: 'read_rows',
          description: 'Some of the rows, from 0',
          input: z.object({ from: z.int().min(0), count: z.int().min(1).max(3) }),
        },
        handler(input, { agentInput, state }) {
          const { from, count } = input as { from: number; count: number };
          const rows = rowsOf(agentInput.csv).slice(1 + from, 1 + from + count);
          state.run.rowsSeen += rows.length;
          return rows.map((row) => row.join(',')).join('\n');
        },
      },
    ],
    output: {
      name: 'report',
      description: 'Your report. You are shown how it will look.',
      reflectionHandler: ({ best, regions }) =>
        `Best: ${best}\n${regions.map(({ name, revenue }) => `${name} ${revenue}`).join('\n')}`,
    },
  },
  validation: {
    outputSchema: Report,
    customValidators: [
      {
        name: 'adds-up',
        validate({ regions }, { input }) {
          const [, ...rows] = rowsOf(input.csv);
          const all = rows.reduce((sum, [, revenue]) => sum + Number(revenue), 0);
          const reported = regions.reduce((sum, { revenue }) => sum + revenue, 0);
          return reported === all || `the regions sum up to ${reported}, but the file to ${all}`;
        },
      },
    ],
    maxAttempts: 3,
  },
  projectFinalState: ({ run }) => run,
});

const result = await executeAgent(analyst, {
  input: { csv, text: 'Which region earned most?' },
  callbacks: {
    onToolCall: ({ attempt, iteration }, name) => console.log(`${attempt}.${iteration} ${name}`),
    onValidationFailure: (_, { message }) => console.log(message),
    onAttemptComplete: ({ attempt }, how) => console.log(`attempt ${attempt} was ${how}`),
  },
});
// prints: 1.1 list_columns
// prints: 1.1 read_rows
// prints: 1.2 report
// prints: 1.3 submit
// prints: "adds-up" rejected the output: the regions sum up to 950, but the file to 1000
// prints: attempt 1 was rejected
// prints: 2.1 read_rows
// prints: 2.2 report
// prints: 2.2 submit
// prints: attempt 2 was accepted

const { output, finalState, metadata } = result.orThrow();
console.log(output.best, output.regions.length, finalState?.rowsSeen, metadata.iterations);
// prints: north 3 4 5
