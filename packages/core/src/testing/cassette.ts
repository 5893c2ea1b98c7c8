import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Model, ModelDelta, ModelReply, ModelRequest } from '../model.ts';

/** The requests and replies of a model, in order. `key` and `deadline` are left out because they differ in each run. */
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
  /** Throws if an exchange was not used or a request differed. */
  readonly assertDone: () => void;
}

/** Wraps a model and records all its requests and replies in a file, which is rewritten after each reply. */
export function recordModel(model: Model, path: string): Model {
  const exchanges: (Exchange | undefined)[] = [];
  return {
    id: model.id,
    ...(model.priced !== undefined && { priced: model.priced }),
    ...(model.maxCost && { maxCost: (input: number, output: number) => model.maxCost!(input, output) }),
    async reply(request, emit, signal) {
      const deltas: ModelDelta[] = [];
      const recorded = comparable(request);
      // Keeps the order of the requests, even if a later one is answered first.
      const index = exchanges.push(undefined) - 1;
      const reply = await model.reply(request, (delta) => (deltas.push(delta), emit(delta)), signal);
      exchanges[index] = { request: recorded, deltas, reply };
      const answered = exchanges.filter((exchange) => exchange !== undefined);
      const cassette: Cassette = { v: 1, model: model.id, exchanges: answered };
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, `${JSON.stringify(cassette, undefined, 2)}\n`);
      return reply;
    },
  };
}

/** Replays a recording offline. Throws at the first request that differs from the recorded one. */
export function replayModel(path: string): ReplayModel {
  if (!existsSync(path)) throw new Error(`There is no cassette at ${path}. Record one first, with recordModel.`);
  const { model, exchanges } = JSON.parse(readFileSync(path, 'utf8')) as Cassette;
  const unused = [...exchanges];
  let requests = 0;
  let problem: string | undefined;

  function assertDone(): void {
    if (problem !== undefined) throw new Error(problem);
    const used = exchanges.length - unused.length;
    if (unused.length > 0) throw new Error(`Only ${used} of the ${exchanges.length} exchanges of ${path} were used.`);
  }

  function failReplay(what: string): never {
    problem ??= what;
    throw new Error(what);
  }

  return {
    id: model,
    priced: exchanges.every(({ reply }) => reply.type === 'failure' || reply.usage.cost !== undefined),
    assertDone,
    [Symbol.dispose]: assertDone,
    async reply(request, emit) {
      const number = requests++;
      const now = comparable(request);
      // Concurrent runs may send requests in any order, so each request takes the first exchange that matches.
      const index = unused.findIndex((exchange) => requestDifference(exchange.request, now, 'request') === undefined);
      if (unused.length === 0)
        failReplay(`Request ${number} is not in ${path}, which has ${exchanges.length}. Record it again.`);
      if (index === -1) {
        const difference = requestDifference(unused[0]!.request, now, 'request');
        failReplay(`Request ${number} differs from the one in ${path}: ${difference}`);
      }
      const [exchange] = unused.splice(index, 1) as [Exchange];
      for (const delta of exchange.deltas) emit(delta);
      return exchange.reply;
    },
  };
}

function comparable({
  key: _key,
  deadline: _deadline,
  ...request
}: ModelRequest): Omit<ModelRequest, 'key' | 'deadline'> {
  return JSON.parse(JSON.stringify(request)) as Omit<ModelRequest, 'key' | 'deadline'>;
}

/** Describes where two JSON values first differ; undefined if they are equal. */
function requestDifference(was: unknown, is: unknown, path: string): string | undefined {
  if (isContainer(was) && isContainer(is) && Array.isArray(was) === Array.isArray(is)) {
    for (const key of new Set([...Object.keys(was), ...Object.keys(is)])) {
      const inner = Array.isArray(was) ? `${path}[${key}]` : `${path}.${key}`;
      const difference = requestDifference(was[key], is[key], inner);
      if (difference !== undefined) return difference;
    }
    return undefined;
  }
  return Object.is(was, is) ? undefined : `${path} was ${shortJson(was)}, now it is ${shortJson(is)}`;
}

function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function shortJson(value: unknown): string {
  const text = value === undefined ? 'absent' : JSON.stringify(value);
  return text.length <= 200 ? text : `${text.slice(0, 200)}…`;
}
