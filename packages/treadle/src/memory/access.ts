import { memoryOn, type Forgetting, type MemoryFilter, type MemoryItem, type MemoryLevel } from '@treadle/core/memory';
import type { ListPage, WireForgotten, WireMemory } from '@treadle/server/wire';
import { CommandError } from '../command-line/command.ts';
import type { CommandContext } from '../config/context.ts';
import { openEmbedder } from './open-embedder.ts';
import { loadStorePackage, openExistingStore } from '../config/store.ts';
import { connectToServer, type ServerConnection, type ServerValues } from '../operate/server-connection.ts';
import type { Io } from '../terminal/io.ts';

/** What is remembered: of a server, or of the store. */
export interface MemoryAccess {
  /** The newest first, in pages. */
  pages(filter: Wanted): AsyncIterable<readonly WireMemory[]>;
  search(text: string, options: Pick<Wanted, 'level' | 'limit' | 'tag'>): Promise<readonly WireMemory[]>;
  /** Undefined: there is nothing with this id. */
  get(id: string): Promise<WireMemory | undefined>;
  /** Resolves to how many there were. */
  forget(what: Omit<Forgetting, 'tenant' | 'until'> & { readonly until?: number }): Promise<number>;
  close(): Promise<void>;
}

export interface Wanted extends Pick<
  MemoryFilter,
  'type' | 'session' | 'agent' | 'subject' | 'tag' | 'runId' | 'since' | 'until'
> {
  readonly level: MemoryLevel;
  /** Of all pages together. */
  readonly limit: number;
}

/** The tenant of a server without keys, and of the runs of the command. */
const TENANT = 'default';
const PAGE = 100;

export async function openMemory(
  values: ServerValues & { readonly tenant?: string },
  context: CommandContext,
  io: Io,
): Promise<MemoryAccess> {
  const server = await connectToServer(values, context.store, io);
  if (!server) return storeMemory(context, values.tenant ?? TENANT, io);
  if (values.tenant === undefined) return serverAccess(server);
  throw new CommandError(`The server ${server.url} shows the tenant of the key. Use a key of it, instead of --tenant.`);
}

async function storeMemory(context: CommandContext, tenant: string, io: Io): Promise<MemoryAccess> {
  const { embedder } = await openEmbedder(context.loaded, io.env);
  const { wireMemory } = await import('@treadle/server');
  const store = await openExistingStore(context.store);
  const { countNotedRuns } = await loadStorePackage();
  const keepsMemory = context.loaded.config.memory?.enabled === true;
  /** Another process may be counting the same runs. */
  const refresh = async (): Promise<void> => {
    if (keepsMemory) while ((await countNotedRuns(store, { keepsMemory })) > 0);
  };
  const { memory: port } = store;
  const onProblem = (error: unknown): void =>
    void io.stderr.write(`The model for embeddings failed, so only words are searched: ${String(error)}\n`);
  const memory = memoryOn({ port, refresh, onProblem, ...(embedder && { embedder }) });
  return {
    async *pages({ level, limit, ...filter }) {
      await refresh();
      let after: MemoryItem | undefined;
      for (let left = limit; left > 0;) {
        const most = Math.min(left, PAGE);
        const items = await port.list({ ...filter, tenant, limit: most, ...(after && { after }) });
        await store.durable();
        yield items.map((item) => wireMemory(item, level));
        if (items.length < most) return;
        left -= most;
        after = items.at(-1);
      }
    },
    async search(text, { level, limit, ...filter }) {
      const items = await memory.search({ ...filter, tenant }, text, { level, topK: limit });
      await store.durable();
      return items.map((item) => wireMemory(item, level));
    },
    async get(id) {
      const item = await port.get({ tenant }, id);
      await store.durable();
      return item && wireMemory(item, 'full');
    },
    async forget(what) {
      await refresh();
      return port.forget({ tenant, until: Date.now(), ...what });
    },
    close: () => store.close(),
  };
}

function serverAccess(server: ServerConnection): MemoryAccess {
  const path = (id: string): string => `/v1/memory/${encodeURIComponent(id)}`;
  const search = (values: Readonly<Record<string, string | number | undefined>>): string => {
    const given = Object.entries(values).filter(([, value]) => value !== undefined);
    return `/v1/memory?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
  };
  return {
    async *pages({ level, limit, runId, ...filter }) {
      let cursor: string | undefined;
      for (let left = limit; left > 0; left -= PAGE) {
        const query = { ...filter, run: runId, level, limit: Math.min(left, PAGE), cursor };
        const page = await server.get<ListPage<WireMemory>>(search(query));
        yield page.data;
        if (!page.has_more) return;
        cursor = page.next_cursor!;
      }
    },
    search: async (text, options) => (await server.get<ListPage<WireMemory>>(search({ query: text, ...options }))).data,
    get: (id) => server.get<WireMemory>(path(id)),
    async forget({ id, until, ...what }) {
      if (id !== undefined) return (await server.send<WireForgotten>('DELETE', path(id))).count;
      // Those that are not younger: the server takes the time before which they are.
      const before = until === undefined ? undefined : until + 1;
      const isAll = before === undefined && Object.keys(what).length === 0;
      const query = search({ ...what, until: before, ...(isAll && { all: 'true' }) });
      return (await server.send<WireForgotten>('DELETE', query)).count;
    },
    close: async () => {},
  };
}
