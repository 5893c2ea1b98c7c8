import { TreadleError } from '@treadle/core';
import type { TreadleServer } from '@treadle/server';
import { command, type Command } from '../command.ts';
import { EXIT } from '../exit-code.ts';
import type { Io } from '../io.ts';
import { openModel } from '../models/open-model.ts';
import { findPlace } from '../place.ts';
import { MODEL_FLAGS, PLACE_FLAGS } from '../session-flags.ts';
import { toolsOf } from '../session.ts';
import { openServerStore } from '../store/open-store.ts';
import { serveOptions } from './serve-options.ts';
import { servedModels } from './served-models.ts';
import { stoppable } from './stop.ts';
import { welcome } from './welcome.ts';

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
