import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from '../command/scripted-openai.ts';
import { onScreen, type CommandInProcess, type Size } from './emulated-screen.ts';

export const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
export const KEYS = {
  enter: '\r',
  escape: '\u001b',
  tab: '\t',
  up: '\u001b[A',
  down: '\u001b[B',
  ctrlC: '\u0003',
  ctrlD: '\u0004',
  ctrlL: '\u000c',
  ctrlO: '\u000f',
} as const;

export interface Chat extends CommandInProcess {
  /** Enters a message. */
  say(text: string): void;
  leave(): Promise<number>;
}

/** Chats in a temporary folder with a scripted model, each on an emulated terminal. */
export interface Chats {
  readonly play: Playground;
  /** Of the last chat. */
  readonly server: ScriptedOpenAi;
  open(
    steps: Parameters<typeof scriptedOpenAi>[0],
    options?: {
      readonly args?: readonly string[];
      readonly size?: Size;
      readonly env?: Record<string, string>;
      /** What the chat begins with; default: its prompt. */
      readonly until?: string;
    },
  ): Promise<Chat>;
  close(): Promise<void>;
}

export async function chats(): Promise<Chats> {
  const play = await playground();
  const servers: ScriptedOpenAi[] = [];
  return {
    play,
    get server() {
      return servers.at(-1)!;
    },
    async open(steps, { args = [], until, ...where } = {}) {
      const server = await scriptedOpenAi(steps);
      servers.push(server);
      const given = ['chat', '--model', 'scripted', '--base-url', server.baseURL, ...args];
      const shown = onScreen(given, play.folder, where);
      await shown.shows(until ?? /^> *$/m);
      return {
        ...shown,
        say: (text) => shown.type(`${text}\r`),
        async leave() {
          shown.type(KEYS.ctrlD);
          return shown.exit;
        },
      };
    },
    async close() {
      await Promise.all(servers.map((server) => server.close()));
      await play.remove();
    },
  };
}
