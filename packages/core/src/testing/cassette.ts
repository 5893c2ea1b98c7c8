import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Model, ModelDelta, ModelReply, ModelRequest } from '../model.ts';
import { firstDifference } from './difference.ts';

/** What a model was asked and how it answered, in order. `key` is left out: it differs from run to run. */
interface Cassette {
  readonly v: 1;
  readonly model: string;
  readonly exchanges: readonly Exchange[];
}

interface Exchange {
  readonly request: Omit<ModelRequest, 'key'>;
  readonly deltas: readonly ModelDelta[];
  readonly reply: ModelReply;
}

export interface ReplayModel extends Model, Disposable {
  /** Throws if an exchange was not used, or if a request differed. */
  readonly assertDone: () => void;
}

/** The same model, with everything that it is asked and answers kept in a file, which is written anew each time. */
export function recordModel(model: Model, path: string): Model {
  const exchanges: Exchange[] = [];
  return {
    id: model.id,
    async reply(request, emit, signal) {
      const deltas: ModelDelta[] = [];
      const asked = plain(request);
      const reply = await model.reply(request, (delta) => (deltas.push(delta), emit(delta)), signal);
      exchanges.push({ request: asked, deltas, reply });
      const cassette: Cassette = { v: 1, model: model.id, exchanges };
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, `${JSON.stringify(cassette, undefined, 2)}\n`);
      return reply;
    },
  };
}

/** Answers as recorded, offline. The first request that differs from the recorded one throws, and says how. */
export function replayModel(path: string): ReplayModel {
  if (!existsSync(path)) throw new Error(`There is no cassette at ${path}. Record one first, with recordModel.`);
  const { model, exchanges } = JSON.parse(readFileSync(path, 'utf8')) as Cassette;
  let used = 0;
  let problem: string | undefined;

  function assertDone(): void {
    if (problem !== undefined) throw new Error(problem);
    if (used < exchanges.length)
      throw new Error(`Only ${used} of the ${exchanges.length} exchanges of ${path} were used.`);
  }

  function fail(what: string): never {
    problem ??= what;
    throw new Error(what);
  }

  return {
    id: model,
    assertDone,
    [Symbol.dispose]: assertDone,
    async reply(request, emit) {
      const exchange = exchanges[used];
      if (!exchange) fail(`Request ${used} is not in ${path}, which has ${exchanges.length}. Record it again.`);
      const difference = firstDifference(exchange.request, plain(request), 'request');
      if (difference) fail(`Request ${used} differs from the one in ${path}: ${difference}`);
      used++;
      for (const delta of exchange.deltas) emit(delta);
      return exchange.reply;
    },
  };
}

function plain({ key: _, ...request }: ModelRequest): Omit<ModelRequest, 'key'> {
  return JSON.parse(JSON.stringify(request)) as Omit<ModelRequest, 'key'>;
}
