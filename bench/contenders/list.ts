import { existsSync } from 'node:fs';
import type { Front } from '../serving/front.ts';
import type { Contender } from './contender.ts';

/** The description of a contender, available before it is loaded. */
export interface Entry {
  readonly id: ContenderId;
  readonly name: string;
  readonly kind: 'ours' | 'floor' | 'peer';
  readonly file: string;
  /** Supported modes; `http: []` for contenders with only an in-process model, and for servers. */
  readonly http: readonly Mode[];
  readonly inProcess: readonly Mode[];
  /** The imports that a user needs for this loop and a provider. */
  readonly imports: readonly string[];
}

export type Mode = 'stream' | 'whole';
export type ContenderId = (typeof IDS)[number];

const IDS = [
  'treadle',
  'treadle-anthropic',
  'treadle-sqlite',
  'treadle-sqlite-once',
  'treadle-policy',
  'treadle-tracing',
  'treadle-otlp',
  'treadle-otlp-hangs',
  'fast-floor',
  'fetch-floor',
  'minimal',
  'openai',
  'anthropic-sdk',
  'ai',
  'pi',
  'openai-agents',
  'mastra',
  'langchain',
  'direct',
  'proxy',
  'treadle-server',
  'treadle-server-stored',
] as const;

const BOTH: readonly Mode[] = ['whole', 'stream'];
const OURS = {
  kind: 'ours',
  http: BOTH,
  inProcess: [],
  imports: ['@treadle/core', '@treadle/models/openai-chat'],
} as const;
const FLOOR = { kind: 'floor', http: BOTH, inProcess: [] } as const;
/** Servers between a client and the model, used only in the server rows. */
const SERVED = { http: [], inProcess: [], imports: [] } as const;
const PEER = { kind: 'peer', http: BOTH, inProcess: BOTH } as const;

export const CONTENDERS: readonly Entry[] = [
  { ...OURS, id: 'treadle', name: 'Treadle', file: ours('treadle'), inProcess: BOTH },
  { ...OURS, id: 'treadle-anthropic', name: 'Treadle (Anthropic)', file: ours('treadle-anthropic') },
  { ...OURS, id: 'treadle-sqlite', name: 'Treadle + SQLite', file: ours('treadle-sqlite') },
  { ...OURS, id: 'treadle-sqlite-once', name: 'Treadle + SQLite, once', file: ours('treadle-sqlite-once') },
  { ...OURS, id: 'treadle-policy', name: 'Treadle + policy', file: ours('treadle-policy') },
  { ...OURS, id: 'treadle-tracing', name: 'Treadle + tracing', file: ours('treadle-tracing') },
  { ...OURS, id: 'treadle-otlp', name: 'Treadle + OTLP', file: ours('treadle-otlp') },
  { ...OURS, id: 'treadle-otlp-hangs', name: 'Treadle + OTLP that hangs', file: ours('treadle-otlp-hangs') },
  { ...FLOOR, id: 'fast-floor', name: 'fast floor', file: ours('fast-floor'), imports: ['undici'] },
  { ...FLOOR, id: 'fetch-floor', name: 'fetch floor', file: ours('fetch-floor'), imports: ['eventsource-parser'] },
  { ...FLOOR, id: 'minimal', name: 'minimal loop', file: ours('minimal'), http: [], inProcess: BOTH, imports: [] },
  { ...PEER, id: 'openai', name: 'openai runTools', file: peer('openai'), inProcess: [], imports: ['openai'] },
  {
    ...PEER,
    id: 'anthropic-sdk',
    name: '@anthropic-ai/sdk',
    file: peer('anthropic-sdk'),
    inProcess: [],
    imports: ['@anthropic-ai/sdk'],
  },
  { ...PEER, id: 'ai', name: 'ai', file: peer('ai'), imports: ['ai', '@ai-sdk/openai'] },
  {
    ...PEER,
    id: 'pi',
    name: 'pi-agent-core',
    file: peer('pi'),
    http: ['stream'],
    inProcess: ['stream'],
    imports: ['@mariozechner/pi-agent-core', '@mariozechner/pi-ai'],
  },
  { ...PEER, id: 'openai-agents', name: '@openai/agents', file: peer('openai-agents'), imports: ['@openai/agents'] },
  {
    ...PEER,
    id: 'mastra',
    name: '@mastra/core',
    file: peer('mastra'),
    imports: ['@mastra/core/agent', '@mastra/core/tools', '@ai-sdk/openai'],
  },
  {
    ...PEER,
    id: 'langchain',
    name: 'langchain',
    file: peer('langchain'),
    imports: ['langchain', '@langchain/openai'],
  },
  { ...SERVED, id: 'direct', kind: 'floor', name: 'the model directly', file: ours('direct') },
  { ...SERVED, id: 'proxy', kind: 'floor', name: 'bare proxy', file: ours('proxy') },
  { ...SERVED, id: 'treadle-server', kind: 'ours', name: 'Treadle server', file: ours('treadle-server') },
  {
    ...SERVED,
    id: 'treadle-server-stored',
    kind: 'ours',
    name: 'Treadle server, stored',
    file: ours('treadle-server-stored'),
  },
];

function ours(name: string): string {
  return `contenders/${name}.ts`;
}

function peer(name: string): string {
  return `peers/${name}.ts`;
}

export function entryOf(id: string): Entry {
  const found = CONTENDERS.find((one) => one.id === id);
  if (!found) throw new Error(`Unknown contender '${id}'. Contenders: ${IDS.join(', ')}`);
  return found;
}

export async function load(entry: Pick<Entry, 'file'>): Promise<Contender> {
  return ((await loaded(entry)) as { contender: Contender }).contender;
}

export async function loadFront(entry: Pick<Entry, 'file'>): Promise<Front> {
  return ((await loaded(entry)) as { front: Front }).front;
}

async function loaded({ file }: Pick<Entry, 'file'>): Promise<unknown> {
  const url = new URL(`../${file}`, import.meta.url);
  if (!existsSync(url)) throw new Error(`${file} does not exist`);
  return import(url.href);
}
