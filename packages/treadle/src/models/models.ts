import { messageOf, type ModelError } from '@treadle/core';
import { chooseEntry } from '../config/choose-model.ts';
import { coloursFor } from '../terminal/colours.ts';
import { command, type Command, EXIT } from '../command-line/command.ts';
import type { LoadedConfig } from '../config/load.ts';
import { interruptible } from '../terminal/signals.ts';
import type { Io } from '../terminal/io.ts';
import { findPlace } from '../config/context.ts';
import { printable } from '../terminal/printable.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { listedModels, type ListedModel, modelTable, type Row } from './model-list.ts';
import { openModel } from './open-model.ts';
import { passes, probeProblem, probeText, probe, type Probe } from './probe.ts';

const DEFAULT_TIMEOUT_S = 60;

export const modelsCommand: Command = command({
  name: 'models',
  summary: 'List the models of the configuration and test them',
  arguments: ['[name]'],
  flags: {
    'no-test': { type: 'switch', help: 'Only list them; nothing is sent' },
    timeout: { type: 'count', value: 'SECONDS', min: 1, help: `For each test; default: ${DEFAULT_TIMEOUT_S}` },
    json: { type: 'switch', help: 'Print JSON' },
    config: PLACE_FLAGS.config,
    cwd: PLACE_FLAGS.cwd,
  },
  notes: [
    'Each model is asked for one small call of a tool: is it reachable, does it support tools, does it stream? That costs\n' +
      'a few tokens. A model is tested alone, without those that it falls back on.',
    'Keys come from the environment only and are never shown.',
    'Exit codes:\n  0  every model that was tested is reachable and supports tools\n  1  one is not or does not\n' +
      '  2  the command or the configuration is not right; nothing was sent\n  130  stopped with Ctrl-C',
    'Examples:\n  treadle models\n  treadle models main --timeout 10\n  treadle models --no-test --json',
  ],
  async run({ values, arguments: [name] }, io) {
    const { loaded } = await findPlace(values, io);
    const models = listedModels(loaded, io.env, name);
    if (loaded.config.models === undefined) {
      io.stderr.write(
        `${loaded.file ? `${loaded.file} names no model` : 'There is no treadle.toml'}, so this one is used.\n`,
      );
    }
    if (values['no-test']) {
      show(models, { json: values.json, io });
      return EXIT.completed;
    }
    const interrupt = interruptible(io);
    try {
      const timeoutMs = (values.timeout ?? DEFAULT_TIMEOUT_S) * 1_000;
      const rows = await Promise.all(
        models.map((model) => tested(model, { loaded, io, timeoutMs, stop: interrupt.signal })),
      );
      if (interrupt.signal.aborted) return EXIT.cancelled;
      show(rows, { json: values.json, io });
      return rows.every(({ test }) => passes(test)) ? EXIT.completed : EXIT.failed;
    } finally {
      interrupt.release();
    }
  },
});

interface Testing {
  readonly loaded: LoadedConfig;
  readonly io: Io;
  readonly timeoutMs: number;
  readonly stop: AbortSignal;
}

/** Tests one and tells of it on the way. */
async function tested(
  listed: ListedModel,
  { loaded, io, timeoutMs, stop }: Testing,
): Promise<ListedModel & { readonly test: Probe }> {
  const colours = coloursFor(io.stderr, io.env);
  const say = (text: string): void => {
    if (!stop.aborted) io.stderr.write(`${text}\n`);
  };
  const name = printable(listed.name);
  say(colours.dim(`${name}: testing…`));
  const test = await outcome(listed, { loaded, io, timeoutMs, stop });
  const problem = probeProblem(test);
  say(problem === undefined ? `${name}: ${probeText(test)}` : colours.red(`${name}: ${problem}`));
  return { ...listed, test };
}

async function outcome(listed: ListedModel, { loaded, io, timeoutMs, stop }: Testing): Promise<Probe> {
  const { variable, standing } = listed.key;
  if (standing === 'missing') return unasked('auth', `There is no key: set the environment variable ${variable}.`);
  const limit = AbortSignal.timeout(timeoutMs);
  try {
    const choice = chooseEntry(listed.entry, {}, loaded, io.env);
    if (choice.notice) io.stderr.write(`${choice.notice}\n`);
    const model = await openModel(choice, { maxRetries: 0 });
    const result = await probe(model, AbortSignal.any([stop, limit]));
    if (!limit.aborted || result.reachable) return result;
    return { ...result, error: { ...late(timeoutMs), retryable: true } };
  } catch (thrown) {
    return unasked('invalid-request', messageOf(thrown));
  }
}

function late(timeoutMs: number): Pick<ModelError, 'code' | 'message'> {
  return { code: 'timeout', message: `It gave no whole reply within ${timeoutMs / 1_000} s. --timeout gives it more.` };
}

function unasked(code: ModelError['code'], message: string): Probe {
  return { reachable: false, ms: 0, error: { code, message, retryable: false } };
}

function show(rows: readonly Row[], { json, io }: { readonly json: boolean | undefined; readonly io: Io }): void {
  if (json) {
    const plain = rows.map(({ entry: _, ...row }) => row);
    io.stdout.write(`${JSON.stringify(plain, null, 2)}\n`);
  } else io.stdout.write(`${modelTable(rows, coloursFor(io.stdout, io.env)).join('\n')}\n`);
}
