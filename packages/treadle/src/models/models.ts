import { messageOf, type ModelError } from '@treadle/core';
import { defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { chooseEntry } from '../config/choose-model.ts';
import { resolveContext } from '../config/context.ts';
import type { LoadedConfig } from '../config/load.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { listedModels, modelTable, type ListedModel, type Row } from './model-list.ts';
import { openModel } from './open-model.ts';
import { passes, probe, probeProblem, probeText, type Probe } from './probe.ts';

const DEFAULT_TIMEOUT_S = 60;

export const modelsCommand: Command = defineCommand({
  name: 'models',
  summary: SUMMARIES.models,
  arguments: ['[name]'],
  flags: {
    'no-test': { type: 'switch', help: 'Only list the models; do not send requests' },
    timeout: { type: 'count', value: 'SECONDS', min: 1, help: `Deadline of each test; default: ${DEFAULT_TIMEOUT_S}` },
    json: { type: 'switch', help: 'Print JSON' },
    config: LOCATION_FLAGS.config,
    cwd: LOCATION_FLAGS.cwd,
  },
  notes: [
    'Asks each model for one small tool call, to test whether it is reachable, supports tools and streams. This costs a few\n' +
      'tokens. Models are tested without their fallbacks.',
    'API keys are read from the environment only, and are never shown.',
    'Exit codes:\n  0    every tested model is reachable and supports tools\n  1    a tested model is not reachable or does not support tools\n' +
      '  2    the command or its configuration is invalid; nothing was sent\n  130  stopped with Ctrl-C',
  ],
  examples: ['treadle models', 'treadle models main --timeout 10', 'treadle models --no-test --json'],
  async run({ values, arguments: [name] }, io) {
    const { loaded } = await resolveContext(values, io);
    const models = listedModels(loaded, io.env, name);
    if (loaded.config.models === undefined) {
      io.stderr.write(
        `${loaded.file ? `${loaded.file} has no models` : 'There is no treadle.toml'}. This model is used instead.\n`,
      );
    }
    if (values['no-test']) {
      printModels(models, { json: values.json, io });
      return EXIT.completed;
    }
    const interrupt = catchInterrupt(io);
    try {
      const timeoutMs = (values.timeout ?? DEFAULT_TIMEOUT_S) * 1_000;
      const rows = await Promise.all(
        models.map((model) => testModel(model, { loaded, io, timeoutMs, stop: interrupt.signal })),
      );
      if (interrupt.signal.aborted) return EXIT.cancelled;
      printModels(rows, { json: values.json, io });
      return rows.every(({ test }) => passes(test)) ? EXIT.completed : EXIT.failed;
    } finally {
      interrupt.release();
    }
  },
});

interface TestOptions {
  readonly loaded: LoadedConfig;
  readonly io: Io;
  readonly timeoutMs: number;
  readonly stop: AbortSignal;
}

/** Tests a model, and prints the progress. */
async function testModel(
  listed: ListedModel,
  { loaded, io, timeoutMs, stop }: TestOptions,
): Promise<ListedModel & { readonly test: Probe }> {
  const colours = coloursFor(io.stderr, io.env);
  const writeLine = (text: string): void => {
    if (!stop.aborted) io.stderr.write(`${text}\n`);
  };
  const name = printable(listed.name);
  writeLine(colours.dim(`${name}: testing…`));
  const test = await probeListed(listed, { loaded, io, timeoutMs, stop });
  const problem = probeProblem(test);
  writeLine(problem === undefined ? `${name}: ${probeText(test)}` : colours.red(`${name}: ${problem}`));
  return { ...listed, test };
}

/** Tests a model without its fallbacks. */
export async function probeListed(listed: ListedModel, { loaded, io, timeoutMs, stop }: TestOptions): Promise<Probe> {
  const { variable, standing } = listed.key;
  if (standing === 'missing') return notSent('auth', `There is no key: set the environment variable ${variable}.`);
  const limit = AbortSignal.timeout(timeoutMs);
  try {
    const choice = chooseEntry(listed.entry, {}, loaded, io.env);
    if (choice.notice) io.stderr.write(`${choice.notice}\n`);
    const model = await openModel(choice, { maxRetries: 0 });
    const result = await probe(model, AbortSignal.any([stop, limit]));
    if (!limit.aborted || result.reachable) return result;
    return { ...result, error: { ...timedOut(timeoutMs), retryable: true } };
  } catch (thrown) {
    return notSent('invalid-request', messageOf(thrown));
  }
}

function timedOut(timeoutMs: number): Pick<ModelError, 'code' | 'message'> {
  return {
    code: 'timeout',
    message: `There was no complete reply within ${timeoutMs / 1_000} s. --timeout sets another deadline.`,
  };
}

function notSent(code: ModelError['code'], message: string): Probe {
  return { reachable: false, ms: 0, error: { code, message, retryable: false } };
}

function printModels(
  rows: readonly Row[],
  { json, io }: { readonly json: boolean | undefined; readonly io: Io },
): void {
  if (json) {
    const plain = rows.map(({ entry: _, ...row }) => row);
    io.stdout.write(`${JSON.stringify(plain, null, 2)}\n`);
  } else io.stdout.write(`${modelTable(rows, coloursFor(io.stdout, io.env)).join('\n')}\n`);
}
