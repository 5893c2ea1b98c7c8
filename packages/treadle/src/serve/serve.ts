import { TreadleError } from '@treadle/core';
import type { TreadleServer } from '@treadle/server';
import { command, type Command, EXIT } from '../command-line/command.ts';
import type { Io } from '../terminal/io.ts';
import { openModel } from '../models/open-model.ts';
import { findPlace } from '../config/context.ts';
import { MODEL_FLAGS, PLACE_FLAGS } from '../command-line/flags.ts';
import { toolsOf } from '../run/session.ts';
import { openServerStore } from '../config/store.ts';
import { stoppable } from '../terminal/signals.ts';
import {
  chooseModel,
  keyFor,
  lacksKey,
  standingName,
  type ModelChoice,
  type ModelWish,
} from '../config/choose-model.ts';
import { modelEntries } from '../config/config.ts';
import type { LoadedConfig } from '../config/load.ts';
import { serveOptions, type ServeOptions } from './serve-options.ts';

export const serveCommand: Command = command({
  name: 'serve',
  summary: 'Serve the loop over HTTP to any OpenAI client',
  flags: {
    host: { type: 'text', value: 'HOST', help: 'Where to listen; default: 127.0.0.1. Elsewhere it needs keys' },
    port: {
      type: 'count',
      short: 'p',
      value: 'PORT',
      min: 0,
      max: 65_535,
      help: 'Default: 3210; 0 is any that is free',
    },
    ...MODEL_FLAGS,
    ...PLACE_FLAGS,
  },
  notes: [
    'Clients find POST /v1/responses and /v1/chat/completions, GET /v1/models, /healthz and /readyz. All models of\n' +
      '[models] are served under their names; --model says which is the default. Functions of a request run at the\n' +
      'client; the read-only file tools of the working folder run here, for requests that ask for them with\n' +
      '{"type": "mcp", "server_label": "treadle"} and, by default_tools in [server], for every request.',
    'Without keys it listens on this machine only, and any program there may use it. "treadle key new" makes a key;\n' +
      'its hash goes into [[server.keys]] of treadle.toml, beside limits, CORS and other settings in [server].',
    'One line with the address goes to standard output, the log goes to standard error as JSON lines. Ctrl-C or SIGTERM\n' +
      'stops it: runs get shutdown_grace_ms to end, what is left is put aside and goes on at the next start. A second\n' +
      'one ends it at once.',
    "The models' own keys come from the environment only: OPENAI_API_KEY, or the variable that api_key_env names in\n" +
      'treadle.toml. Without a key and a configuration the demo model answers.',
    'Exit codes:\n  0  it was stopped\n  1  it could not listen there, or was ended before it could stop\n' +
      '  2  the command or its configuration is not right; nothing was served',
    'Examples:\n  treadle serve\n  treadle serve --port 8080 --model openai/gpt-5-mini\n  treadle serve --config team.toml',
  ],
  async run({ values }, io) {
    const place = await findPlace(values, io);
    const models = servedModels({ model: values.model, baseUrl: values['base-url'] }, place.loaded, io.env);
    const options = serveOptions(values, place.loaded, toolsOf(place));
    const opened = await Promise.all(
      [...models.choices].map(async ([name, choice]) => [name, await openModel(choice)] as const),
    );
    const { newLog, treadleServer } = await import('@treadle/server');
    const { log_level: level, shutdown_grace_ms: graceMs } = place.loaded.config.server ?? {};
    const log = newLog({ to: io.stderr, ...(level !== undefined && { level }) });
    const say = (text: string): void => {
      // For a person in words; for whoever collects logs, as one of them.
      if (io.stderr.isTTY) io.stderr.write(`${text}\n`);
      else log.warn(text);
    };
    const served = { default: models.default, models: new Map(opened) };

    // Last, so that nothing is made on the disk by a command that cannot work.
    const store = await openServerStore(place.store);
    const stop = stoppable(io);
    try {
      const server = treadleServer({ ...options, models: served, store, log });
      const url = await listening(server, io);
      if (url === undefined) return EXIT.failed;
      io.outliveReaders();
      io.stdout.write(`Treadle listens on ${url}\n`);
      for (const notice of models.notices) say(notice);
      if (io.stderr.isTTY) {
        const file = place.store.type === 'memory' ? undefined : place.store.file;
        const names = [...models.choices.keys()];
        io.stderr.write(`${welcome({ url, models: names, default: models.default, options, file })}\n`);
      }
      await stop.asked;
      if (io.stderr.isTTY) io.stderr.write('Stopping; Ctrl-C again ends it at once.\n');
      await server.close(graceMs);
      return EXIT.completed;
    } finally {
      await store.close();
      stop.release();
    }
  },
});

/** Its address; undefined when this machine does not let it listen there, which was said. */
async function listening(server: TreadleServer, io: Io): Promise<string | undefined> {
  try {
    return (await server.listen()).url;
  } catch (error) {
    // A wrong option has no cause. What does may have passed by the next time.
    if (!(error instanceof TreadleError) || error.cause === undefined) throw error;
    io.stderr.write(`treadle: ${error.message}\n--host and --port say where, or [server] in treadle.toml.\n`);
    return undefined;
  }
}

/** The models that clients can name, and which one serves requests that name none. */
export interface ModelNames {
  readonly default: string;
  readonly choices: ReadonlyMap<string, ModelChoice>;
  /** What the user should know before anything is served. */
  readonly notices: readonly string[];
}

/**
 * Every entry of [models] under its name, and the one that was wished for. Those without their key are left out, as long
 * as it is not the default: the others work without it.
 */
export function servedModels(wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelNames {
  const standard = chooseModel(wish, loaded, env);
  const name = wish.model ?? standingName(loaded) ?? (standard.type === 'demo' ? 'demo' : standard.model);
  const choices = new Map([[name, standard]]);
  const notices = standard.notice === undefined ? [] : [standard.notice];
  for (const [other, entry] of modelEntries(loaded.config)) {
    if (other === name) continue;
    const key = keyFor(entry, env);
    if (lacksKey(key)) {
      notices.push(`The model ${other} is left out, as it has no key: set the environment variable ${key.variable}.`);
      continue;
    }
    const choice = chooseModel({ model: other }, loaded, env);
    choices.set(other, choice);
    if (choice.notice !== undefined) notices.push(choice.notice);
  }
  return { default: name, choices, notices: [...new Set(notices)] };
}

export interface Serving {
  readonly url: string;
  readonly models: readonly string[];
  readonly default: string;
  readonly options: ServeOptions;
  /** Where responses are kept; absent: only in memory. */
  readonly file: string | undefined;
}

/** For a person who has just started it: what there is, and what to try. */
export function welcome({ url, models, default: standard, options, file }: Serving): string {
  const hasKeys = (options.keys ?? []).length > 0;
  const others = models.filter((name) => name !== standard);
  const tools = (options.tools ?? []).map(({ name }) => name);
  const offered = options.defaultTools ?? [];
  return [
    `Models: ${[`${standard} (default)`, ...others].join(', ')}`,
    ...(tools.length > 0
      ? [
          `Tools:  ${tools.join(', ')}; ${offered.length > 0 ? `every request gets ${offered.join(', ')}` : 'for requests that ask'}`,
        ]
      : []),
    `Kept:   ${file ?? 'nothing; --store memory: forgets all when it stops'}`,
    '',
    `Point any OpenAI client at ${url}/v1${hasKeys ? ', with a key of yours' : '; any key will do'}. Or try:`,
    `  ${curl(url, { standard, hasKeys, hasTools: tools.includes('glob') })}`,
    'Ctrl-C stops it.',
  ].join('\n');
}

function curl(
  url: string,
  { standard, hasKeys, hasTools }: { readonly standard: string; readonly hasKeys: boolean; readonly hasTools: boolean },
): string {
  const body = {
    model: standard,
    input: hasTools ? 'List the files' : 'Hello',
    ...(hasTools && { tools: [{ type: 'mcp', server_label: 'treadle' }] }),
  };
  return [
    `curl ${url}/v1/responses -H 'Content-Type: application/json'`,
    ...(hasKeys ? ['-H "Authorization: Bearer $TREADLE_KEY"'] : []),
    `-d '${JSON.stringify(body).replaceAll("'", `'\\''`)}'`,
  ].join(' ');
}
