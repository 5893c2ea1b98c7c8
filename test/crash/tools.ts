import { Parked, tool, type Tool, type ToolContext, type ToolEffect } from '@treadle/core';
import { never, type Life } from './world.ts';

export const WHAT = { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] } as const;

/** A tool that records its actions. Its result depends only on its input. */
function acting(
  life: Life,
  name: string,
  effect: ToolEffect,
  act: (what: string, context: ToolContext) => unknown,
): Tool {
  return tool({
    name,
    description: name,
    input: WHAT,
    effect,
    execute: ({ what }, context) => {
      if (!life.alive()) return never();
      life.world.actions.push({ key: context.key, tool: name, effect });
      return act(String(what), context);
    },
  });
}

async function soon<T>(value: T): Promise<T> {
  await Promise.resolve();
  return value;
}

export const look = (life: Life): Tool => acting(life, 'look', 'pure', (what) => `saw ${what}`);
export const put = (life: Life): Tool => acting(life, 'put', 'idempotent', (what) => soon(`put ${what}`));
export const book = (life: Life): Tool => acting(life, 'book', 'once', (what) => soon(`booked ${what}`));
/** Returns more than text. */
export const picture = (life: Life): Tool =>
  acting(life, 'picture', 'pure', (what) => ({
    content: [
      { type: 'text', text: `a picture of ${what}` },
      { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'aGk=' } },
      {
        type: 'file',
        mediaType: 'text/plain',
        name: 'b.txt',
        source: { type: 'url', url: 'https://example.org/b.txt' },
      },
    ],
  }));
/** Two calls with the same input do not run at the same time. */
export const edit = (life: Life): Tool => ({
  ...acting(life, 'edit', 'idempotent', (what) => soon(`edited ${what}`)),
  resources: (input) => [(input as { what: string }).what],
});
/** Exclusive. */
export const alone = (life: Life): Tool => ({
  ...acting(life, 'alone', 'once', (what) => soon(`did ${what} alone`)),
  exclusive: true,
  timeoutMs: 5_000,
});
/** Requires an approval. */
export const remove = (life: Life): Tool => acting(life, 'remove', 'once', (what) => `removed ${what}`);
/** Runs a command that fails. */
export const shell = (life: Life): Tool =>
  acting(life, 'shell', 'idempotent', (what) =>
    soon({ content: `${what} failed`, isError: true, exitCode: 2, stderr: `no ${what}` }),
  );
/** Returns a result that is too long for the history. */
export const list = (life: Life): Tool =>
  acting(life, 'list', 'pure', (what) => Array.from({ length: 200 }, (_, index) => `${what} ${index}`).join('\n'));
/** Returns JSON that is too long for the history. */
export const rows = (life: Life): Tool =>
  acting(life, 'rows', 'pure', (what) => Array.from({ length: 200 }, (_, index) => `${what} ${index}`));
/** Gets such a list. */
export const count = (life: Life): Tool =>
  tool({
    name: 'count',
    description: 'count',
    input: { type: 'object', properties: { rows: { type: 'array' } }, required: ['rows'] },
    effect: 'idempotent',
    execute: ({ rows: given }, { key }) => {
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'count', effect: 'idempotent' });
      return soon((given as unknown[]).length);
    },
  });
/** Executed by the client. */
export const pick: Tool = tool({ name: 'pick', description: 'pick', input: WHAT });

/** Something external happens while it runs. */
export const slow = (life: Life, meanwhile: () => void): Tool =>
  acting(life, 'slow', 'pure', async (what) => {
    meanwhile();
    return soon(`done with ${what}`);
  });

/** Never returns. */
export const endless = (life: Life, meanwhile: () => void): Tool =>
  acting(life, 'endless', 'pure', () => {
    meanwhile();
    return never();
  });

/** Has the effect `once`. Its verification uses the ledger, but is unknown for the input `hazy`. */
export function wire(life: Life, begins: (what: string) => 'on' | 'done' | 'lost'): Tool {
  const { actions } = life.world;
  return tool({
    name: 'wire',
    description: 'wire',
    input: WHAT,
    execute: async ({ what }, { key }) => {
      if (!life.alive()) return never();
      const how = begins(String(what));
      if (how !== 'lost') actions.push({ key, tool: 'wire', effect: 'once' });
      return how === 'on' ? `wired ${String(what)}` : never();
    },
    verify: ({ what }, context) => {
      if (!life.alive()) return never();
      if (what === 'hazy') return { type: 'unknown' };
      const done = actions.some(({ key }) => key === context.key);
      return done ? { type: 'done', result: `wired ${String(what)}` } : { type: 'not-done' };
    },
  });
}

const WEEK = { ttlMs: 604_800_000 };

/** Executed by the client within a week. */
export const pickInTime: Tool = tool({ name: 'pick', description: 'pick', input: WHAT, ...WEEK });

/**
 * Opens a door with the effect `once`: the call is parked for a week. Its verification finds that the door is offline, and
 * then that it is open. It never finds out anything about the input `stuck`.
 */
export const door = (life: Life): Tool => ({
  ...acting(life, 'door', 'once', (what) => new Parked(`door/${what}`, [], { ...WEEK, wakeAt: 1_000 })),
  verify: (input, { key, parked }) => {
    if (!life.alive()) return never();
    const { what } = input as { what: string };
    const acted = parked ?? life.world.actions.some((action) => action.key === key);
    if (!acted || what === 'stuck') return acted && !parked ? new Parked('door/stuck', [], WEEK) : { type: 'not-done' };
    const isOffline = parked?.on !== `door/${what} is offline`;
    return isOffline ? new Parked(`door/${what} is offline`, [], WEEK) : { type: 'done', result: `opened ${what}` };
  },
});

/** Parks the call on a device, and returns its result when the call is repeated. */
export const job = (life: Life): Tool =>
  acting(life, 'job', 'idempotent', (what, { key }) => {
    const times = life.world.actions.filter((action) => action.key === key).length;
    return soon(times > 1 ? `the device did ${what}` : new Parked(`device/${what}`));
  });
