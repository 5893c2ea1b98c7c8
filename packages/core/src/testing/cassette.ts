import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Model, ModelDelta, ModelReply, ModelRequest } from '../model.ts';
import { firstDifference } from './difference.ts';

/** What a model was asked and how it answered, in order. `key` and `deadline` are left out: they differ from run to run. */
interface Cassette {
  readonly v: 1;
  readonly model: string;
  readonly exchanges: readonly Exchange[];
}

interface Exchange {
  readonly request: Omit<ModelRequest, 'key' | 'deadline'>;
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
  const made: (Exchange | undefined)[] = [];
  return {
    id: model.id,
    ...(model.priced !== undefined && { priced: model.priced }),
    async reply(request, emit, signal) {
      const deltas: ModelDelta[] = [];
      const asked = plain(request);
      // In the order of the requests, though a later one may be answered first.
      const index = made.push(undefined) - 1;
      const reply = await model.reply(request, (delta) => (deltas.push(delta), emit(delta)), signal);
      made[index] = { request: asked, deltas, reply };
      exchanges.splice(0, exchanges.length, ...made.filter((exchange) => exchange !== undefined));
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
  const left = [...exchanges];
  let asked = 0;
  let problem: string | undefined;

  function assertDone(): void {
    if (problem !== undefined) throw new Error(problem);
    const used = exchanges.length - left.length;
    if (left.length > 0) throw new Error(`Only ${used} of the ${exchanges.length} exchanges of ${path} were used.`);
  }

  function fail(what: string): never {
    problem ??= what;
    throw new Error(what);
  }

  return {
    id: model,
    priced: exchanges.every(({ reply }) => reply.type === 'failure' || reply.usage.cost !== undefined),
    assertDone,
    [Symbol.dispose]: assertDone,
    async reply(request, emit) {
      const number = asked++;
      const now = plain(request);
      // Runs at the same time ask in any order, so each request takes the first exchange that is its own.
      const index = left.findIndex((exchange) => firstDifference(exchange.request, now, 'request') === undefined);
      if (left.length === 0)
        fail(`Request ${number} is not in ${path}, which has ${exchanges.length}. Record it again.`);
      if (index === -1) {
        const difference = firstDifference(left[0]!.request, now, 'request');
        fail(`Request ${number} differs from the one in ${path}: ${difference}`);
      }
      const [exchange] = left.splice(index, 1) as [Exchange];
      for (const delta of exchange.deltas) emit(delta);
      return exchange.reply;
    },
  };
}

function plain({ key: _key, deadline: _deadline, ...request }: ModelRequest): Omit<ModelRequest, 'key' | 'deadline'> {
  return JSON.parse(JSON.stringify(request)) as Omit<ModelRequest, 'key' | 'deadline'>;
}
