import { isJsonSchema, messageOf, type JsonSchema } from '@treadle/core';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import {
  FACT_FLAGS,
  KEY_NOTE,
  LOCATION_FLAGS,
  LOG_FLAGS,
  MODEL_FLAGS,
  OUTPUT_FLAGS,
  RULE_FLAGS,
  YES_FLAG,
} from '../command-line/flags.ts';
import { columns } from '../command-line/help.ts';
import type { Io } from '../terminal/io.ts';
import { canAskOn, runAndReport, runScreen } from './run-and-report.ts';
import { openSession } from './session.ts';
import { withSkills } from '../skills/command-skills.ts';
import { readTask, readTextFile } from './task-input.ts';

const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [EXIT.completed, 'completed: the answer is on standard output'],
  [EXIT.failed, 'failed: the model could not be reached, rejected the request, or gave an answer of another form'],
  [EXIT.usage, 'the command or its configuration is invalid; nothing was run'],
  [EXIT.exhausted, 'exhausted: a limit was reached before the task was done'],
  [EXIT.paused, 'paused: it waits for a client result, or for an approval that could not be given here'],
  [
    EXIT.denied,
    'completed, but calls were denied by a rule, or because nobody could be asked: the task may not be done',
  ],
  [EXIT.cancelled, 'stopped with Ctrl-C or SIGTERM'],
];

export const runCommand: Command = defineCommand({
  name: 'run',
  summary: SUMMARIES.run,
  arguments: ['[task]', '[@file]…'],
  flags: {
    prompt: { type: 'text', short: 'p', value: 'TASK', help: 'The task; "-" then sends standard input with it' },
    ...MODEL_FLAGS,
    ...LOCATION_FLAGS,
    ...RULE_FLAGS,
    ...FACT_FLAGS,
    ...YES_FLAG,
    'output-schema': {
      type: 'text',
      value: 'FILE',
      help: 'The answer must be JSON that the JSON Schema in FILE accepts; only it is printed',
    },
    ...OUTPUT_FLAGS,
    'stream-json': { type: 'switch', help: 'Print the events of POST /v1/chat as JSON lines while it runs' },
    ...LOG_FLAGS,
  },
  notes: [
    'The text of the model goes to standard output as it arrives, everything else to standard error. With --quiet, only the\n' +
      'answer is printed: the text of the reply that no calls follow.',
    'The task is read from standard input if it is "-", or if it is missing and standard input is not a terminal. Files\n' +
      'after an @ are sent with it: texts, images and PDFs. If there is no task, the first file is the task.',
    'Ctrl-C stops the run and prints how to resume it; a second Ctrl-C quits immediately.',
    'Each step is stored before the next one starts. "treadle runs" lists, shows and resumes stored runs.',
    `Exit codes:\n${columns(EXIT_CODES.map(([code, meaning]) => [String(code), meaning]))}`,
    KEY_NOTE,
  ],
  examples: [
    'treadle run "Which files mention a licence?"',
    'treadle run --model openai/MODEL --json "What does src/main.ts do?" | jq .usage',
    'treadle run --quiet - < task.md',
    'git diff | treadle run -p "Review this change" - --tools read-only --max-cost 0.50 --stream-json',
    'treadle run @task.md',
    'treadle run "What is wrong here?" @error.log @screenshot.png',
    'treadle run --no-tools --system "You are a translator." "Good morning, in French"',
    'treadle run --skill release-notes "Since the last tag"',
    'treadle run --output-schema person.json "Who maintains this project?" | jq .name',
  ],
  async run({ values, arguments: words }, io) {
    if (values.json && values['stream-json']) {
      throw new CommandError('--stream-json prints events, and --json one object at the end. Use one of them.');
    }
    const task = await readTask(words, io, values.prompt);
    const schemaFile = values['output-schema'];
    const output = schemaFile === undefined ? undefined : await readSchema(schemaFile, io);
    const screen = runScreen(io, { ...values, answerOnly: output !== undefined });
    const { writeLine } = screen;
    const session = await openSession(values, io, {
      defaults: { maxTurns: 100 },
      canAsk: canAskOn(io),
      writeLine,
    });
    const { store, context, options, skills, allTools, notices, explain, follow, deniedTools, close } = session;
    try {
      if (!values.quiet) for (const text of notices) writeLine(text);
      return await runAndReport({
        start: { ...options, ...withSkills(task, skills, values.skill), ...(output && { output }) },
        allTools,
        follow,
        deniedTools,
        store,
        context,
        values,
        io,
        screen,
        explain,
      });
    } finally {
      await close();
    }
  },
});

async function readSchema(file: string, io: Io): Promise<JsonSchema> {
  const text = await readTextFile(file.replace(/^@/, ''), io, ' --output-schema takes a file with a JSON Schema.');
  const problem = (what: string): CommandError =>
    new CommandError(
      `--output-schema ${file} ${what}. It takes a file with a JSON Schema, such as {"type": "object", …}.`,
    );
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    throw problem(`is not JSON: ${messageOf(error)}`);
  }
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) throw problem('is not a JSON object');
  const { schemaProblem } = await import('@treadle/core/schema-problem');
  const wrong = isJsonSchema(schema) ? schemaProblem(schema) : 'it has no keyword of JSON Schema';
  if (wrong !== undefined) throw problem(`is not a valid JSON Schema: ${wrong}`);
  return schema as JsonSchema;
}
