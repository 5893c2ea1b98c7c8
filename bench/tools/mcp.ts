/** MCP servers beside the bare SDK: a call, a list of 1,000 tools, and 100 servers that are idle. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import type { ToolContext } from '@treadle/core';
import { mcpServer, mcpTools } from '@treadle/tools/mcp';

const CALLS = 200;
const LISTS = 3;
const ROUNDS = 15;
const TOOLS = 1_000;
const SERVERS = 100;
const IDLE_MS = 5_000;

const CONTENDERS = ['sdk', 'treadle'] as const;
type Contender = (typeof CONTENDERS)[number];

interface Opened {
  readonly call: () => Promise<unknown>;
  readonly list: () => Promise<{ readonly length: number }>;
  readonly close: () => Promise<void>;
}

/** A server as each contender has it, connected. */
const open: Record<Contender, (tools: string) => Promise<Opened>> = {
  async sdk(tools) {
    const client = new Client({ name: 'bench', version: '1' });
    await client.connect(new StdioClientTransport(program(tools)));
    return {
      call: () => client.callTool({ name: 'tool_0', arguments: { path: 'a' } }),
      list: async () => (await client.listTools(undefined, { cacheMode: 'refresh' })).tools,
      close: () => client.close(),
    };
  },
  async treadle(tools) {
    const server = mcpServer({ name: 'bench', ...program(tools) });
    const [first] = await mcpTools(server);
    /** What the tool gets from a run. */
    const context = {
      signal: new AbortController().signal,
      key: 'run/t1.tool.0',
      report() {},
      hold: async (_: string, make: () => unknown) => ({ resource: make(), isNew: false }),
    } as unknown as ToolContext;
    return {
      call: async () => first!.execute!({ path: 'a' }, context),
      list: () => mcpTools(server),
      close: () => server.close(),
    };
  },
};

function program(tools: string): { readonly command: string; readonly args: string[] } {
  return { command: 'sh', args: [fileURLToPath(new URL('mcp-server.sh', import.meta.url)), tools] };
}

export async function measureMcp(folder: string): Promise<void> {
  const [one, many] = [makeTools(folder, 1), makeTools(folder, TOOLS)];
  const times = await compare(one, CALLS, ({ call }) => call());
  console.log(`MCP, over stdio. A call: ${ROUNDS} rounds of ${CALLS}, us a call`);
  show(times, 1_000);
  const lists = await compare(many, LISTS, async ({ list }) => {
    const { length } = await list();
    if (length !== TOOLS) throw new Error(`There are ${length} tools.`);
  });
  console.log(`A list of ${TOOLS} tools: ${ROUNDS} rounds of ${LISTS}, ms a list`);
  show(lists, 1);
  console.log(`${SERVERS} servers, each with one tool, that are idle for ${IDLE_MS / 1_000} s`);
  for (const contender of CONTENDERS) console.log(`  ${contender.padEnd(10)}${await idleOf(contender, one)}`);
}

/** The JSON of tools as servers have them: three arguments with descriptions. */
function makeTools(folder: string, count: number): string {
  const text = (description: string): object => ({ type: 'string', description });
  const tools = Array.from({ length: count }, (_, index) => ({
    name: `tool_${index}`,
    description: `Does thing number ${index}, and says what it has found. Give a path, and what to look for.`,
    inputSchema: {
      type: 'object',
      properties: {
        path: text('Where to look'),
        query: text('What to look for'),
        limit: { type: 'integer', minimum: 1, maximum: 100, description: 'How many to return at most' },
      },
      required: ['path'],
    },
  }));
  const file = path.join(folder, `tools-${count}.json`);
  writeFileSync(file, JSON.stringify(tools));
  return file;
}

interface Times {
  readonly wall: number[];
  readonly cpu: number[];
}

/** In milliseconds. Both contenders take turns, so that they see the same load of the machine. */
async function compare(
  tools: string,
  uses: number,
  use: (opened: Opened) => Promise<unknown>,
): Promise<Record<Contender, Times>> {
  const opened = { sdk: await open.sdk(tools), treadle: await open.treadle(tools) };
  const times = { sdk: { wall: [], cpu: [] }, treadle: { wall: [], cpu: [] } } as Record<Contender, Times>;
  try {
    for (let round = -2; round < ROUNDS; round++) {
      for (const contender of CONTENDERS) {
        const [start, cpu] = [performance.now(), process.cpuUsage()];
        for (let i = 0; i < uses; i++) await use(opened[contender]);
        const { user, system } = process.cpuUsage(cpu);
        if (round < 0) continue; // warming up
        times[contender].wall.push((performance.now() - start) / uses);
        times[contender].cpu.push((user + system) / 1_000 / uses);
      }
    }
  } finally {
    await Promise.all(CONTENDERS.map((contender) => opened[contender].close()));
  }
  return times;
}

function show({ sdk, treadle }: Record<Contender, Times>, scale: number): void {
  const shown = ({ wall, cpu }: Times): string =>
    `${(median(wall) * scale).toFixed(1)}, CPU ${(median(cpu) * scale).toFixed(1)}`;
  console.log(`  sdk       ${shown(sdk)}`);
  console.log(`  treadle   ${shown(treadle)}`);
  const ratios = [median(treadle.wall) / median(sdk.wall), median(treadle.cpu) / median(sdk.cpu)];
  console.log(`  ratio     ${ratios.map((ratio) => ratio.toFixed(2)).join(', CPU ')}`);
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** In a process of its own, so that memory can be compared. */
async function idleOf(contender: Contender, tools: string): Promise<string> {
  const execArgv = [...process.execArgv, '--expose-gc'];
  const child = fork(fileURLToPath(import.meta.url), [contender, tools], { execArgv });
  const [result] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as [unknown];
  if (typeof result !== 'string') throw new Error(`The process of ${contender} ended with ${String(result)}.`);
  await once(child, 'exit');
  return result;
}

async function beIdle(contender: Contender, tools: string): Promise<string> {
  const warm = await open[contender](tools);
  await warm.call();
  await warm.close();
  const memory = (): { readonly heapUsed: number; readonly rss: number } => {
    globalThis.gc!();
    return process.memoryUsage();
  };
  const before = memory();
  const start = performance.now();
  const servers: Opened[] = [];
  for (let i = 0; i < SERVERS; i++) servers.push(await open[contender](tools));
  const connectMs = (performance.now() - start) / SERVERS;
  const after = memory();
  const cpu = process.cpuUsage();
  await new Promise((done) => void setTimeout(done, IDLE_MS));
  const { user, system } = process.cpuUsage(cpu);
  await Promise.all(servers.map(({ close }) => close()));
  const each = (bytes: number): string => `${(bytes / 1_024 / SERVERS).toFixed(0)} kB`;
  return [
    `heap ${each(after.heapUsed - before.heapUsed)} and RSS ${each(after.rss - before.rss)} a server`,
    `connected in ${connectMs.toFixed(1)} ms a server`,
    `CPU ${((user + system) / 1_000).toFixed(1)} ms in all`,
  ].join(', ');
}

const [contender, tools] = process.argv.slice(2);
if (process.send && tools !== undefined) {
  process.send(await beIdle(contender as Contender, tools));
  process.disconnect();
}
