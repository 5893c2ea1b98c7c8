import { access, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { followUpCommand, LOCATION_FLAGS } from '../command-line/flags.ts';
import { writeProblem } from '../command-line/named-file.ts';
import { keyFor, lacksKey } from '../config/choose-model.ts';
import { workingFolder } from '../config/context.ts';
import { parseConfig } from '../config/load.ts';
import { factsOf, PROVIDERS, type Provider } from '../config/providers.ts';
import type { Io } from '../terminal/io.ts';
import { askLine } from '../terminal/prompt.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { configTemplate, type InitAnswers } from './template.ts';

export const initCommand: Command = defineCommand({
  name: 'init',
  summary: SUMMARIES.init,
  flags: {
    provider: { type: 'choice', choices: PROVIDERS, value: 'NAME', help: `One of ${shortList(PROVIDERS)}` },
    model: { type: 'text', short: 'm', value: 'NAME', help: 'The name of the model at the provider' },
    'base-url': { type: 'text', value: 'URL', help: 'The address of the server, for providers without a default' },
    force: { type: 'switch', help: 'Replace the file if it exists' },
    config: { ...LOCATION_FLAGS.config, help: 'The file to write; default: treadle.toml in the working folder' },
    cwd: LOCATION_FLAGS.cwd,
  },
  notes: [
    'Writes a commented treadle.toml. On a terminal, it asks for what the flags do not say. It never writes a key: keys are\n' +
      'read from the environment.',
    `Providers: ${wrapped(PROVIDERS)}`,
    'Exit codes:\n  0    the file was written\n  2    it exists and --force is not given, or the command is invalid\n  130  stopped with Ctrl-C',
  ],
  examples: [
    'treadle init',
    'treadle init --provider anthropic',
    'treadle init --provider openai-compatible --base-url http://localhost:8000/v1 --model qwen3',
  ],
  async run({ values }, io) {
    const folder = await workingFolder(values.cwd, io);
    const name = values.config ?? 'treadle.toml';
    const file = values.config === undefined ? join(folder, name) : resolve(io.cwd, name);
    if (!values.force) await rejectExisting(file, name);
    const interrupt = catchInterrupt(io);
    try {
      const ask = async (question: string, fallback?: string): Promise<string> => {
        const shown = fallback === undefined ? question : `${question} [${fallback}]`;
        const answer = (await askLine(io, interrupt, `${shown}: `))?.trim();
        if (answer === undefined) throw new Left();
        return answer === '' && fallback !== undefined ? fallback : answer;
      };
      const answers = await answersFrom(values, io, io.stdin.isTTY && io.stderr.isTTY ? ask : undefined);
      const text = configTemplate(answers);
      // What the user entered may be invalid. The errors are those of every other command.
      parseConfig(text, name);
      await writeConfig(file, { name, text, force: values.force === true });
      io.stdout.write(`${nextSteps(answers, name, { ...values, io })}\n`);
      return EXIT.completed;
    } catch (error) {
      if (error instanceof Left) return EXIT.cancelled;
      throw error;
    } finally {
      interrupt.release();
    }
  },
});

/** The user pressed Ctrl-C or Ctrl-D at a question. */
class Left extends Error {}

type Asks = (question: string, fallback?: string) => Promise<string>;

async function answersFrom(
  values: { readonly provider?: string; readonly model?: string; readonly 'base-url'?: string },
  io: Io,
  ask: Asks | undefined,
): Promise<InitAnswers> {
  const provider = (values.provider as Provider | undefined) ?? (await chooseProvider(io, ask));
  if (provider === 'demo') return { provider };
  const { baseURL, model: suggested } = factsOf(provider);
  const baseUrl = values['base-url'] ?? (baseURL === undefined ? await askFor('base-url', ask) : undefined);
  const model =
    values.model ?? (ask ? await askFor('model', ask, suggested) : suggested) ?? (await askFor('model', ask));
  return { provider, model, ...(baseUrl !== undefined && { baseUrl }) };
}

const QUESTIONS = { 'base-url': 'Address of the server, such as https://host/v1', model: 'Model' } as const;

async function askFor(flag: keyof typeof QUESTIONS, ask: Asks | undefined, fallback?: string): Promise<string> {
  if (!ask) throw new CommandError(`--${flag} is missing, and there is no terminal to ask on. Add --${flag}.`);
  return ask(QUESTIONS[flag], fallback);
}

/** The provider that the user chooses. Suggests the first whose key is set. */
async function chooseProvider(io: Io, ask: Asks | undefined): Promise<Provider> {
  const suggested = PROVIDERS.find((one) => io.env[factsOf(one).keyVariable ?? '']?.trim()) ?? 'demo';
  if (!ask) {
    throw new CommandError(
      `There is no terminal to ask on. Name the provider: "treadle init --provider ${suggested}". Providers: ${PROVIDERS.join(', ')}.`,
    );
  }
  io.stderr.write(`Providers: ${wrapped(PROVIDERS)}\n`);
  for (;;) {
    const answer = await ask('Provider', suggested);
    const found = PROVIDERS.find((one) => one === answer);
    if (found !== undefined) return found;
    io.stderr.write(
      `There is no provider ${JSON.stringify(answer)}. Choose one of the list, or "demo" to try Treadle.\n`,
    );
  }
}

async function rejectExisting(file: string, name: string): Promise<void> {
  const exists = await access(file).then(
    () => true,
    () => false,
  );
  if (exists) throw new CommandError(existsText(name));
}

function existsText(name: string): string {
  return `${name} exists, and nothing was written. --force replaces it, --config FILE writes another file.`;
}

async function writeConfig(
  file: string,
  { name, text, force }: { readonly name: string; readonly text: string; readonly force: boolean },
): Promise<void> {
  try {
    await writeFile(file, text, { flag: force ? 'w' : 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw new CommandError(existsText(name));
    throw new CommandError(`${name} cannot be written: ${writeProblem(error)}.`);
  }
}

function nextSteps(
  { provider, model }: InitAnswers,
  name: string,
  { io, config, cwd }: { readonly io: Io; readonly config?: string; readonly cwd?: string },
): string {
  const where = { ...(config !== undefined && { config }), ...(cwd !== undefined && { cwd }) };
  const key = keyFor({ provider }, io.env);
  return [
    `Wrote ${name} for ${model === undefined ? provider : `${provider}/${model}`}.`,
    ...(provider !== 'demo' && lacksKey(key) ? [`Set the key:  export ${key.variable}=…`] : []),
    `Check it:     ${followUpCommand(['doctor'], where)}`,
    `Start a chat: ${followUpCommand(['chat'], where)}`,
  ].join('\n');
}

function shortList(names: readonly string[]): string {
  return `${names.slice(0, 4).join(', ')} and others; see below`;
}

/** The names on lines that fit into the help. */
function wrapped(names: readonly string[]): string {
  const half = Math.ceil(names.length / 2);
  return `${names.slice(0, half).join(', ')},\n  ${names.slice(half).join(', ')}`;
}
