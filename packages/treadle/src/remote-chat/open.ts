import { messageOf } from '@treadle/core';
import { CommandError, EXIT } from '../command-line/command.ts';
import { openHistory } from '../chat/history.ts';
import { changesElsewhere } from '../chat/file-changes.ts';
import { pipedDialogue, type Dialogue } from '../chat/dialogue.ts';
import { lineDialogue } from '../chat/line-dialogue.ts';
import { screenDialogue } from '../chat/screen-dialogue.ts';
import type { StoreLocation } from '../config/store.ts';
import { connectToServer } from '../operate/server-connection.ts';
import type { Io } from '../terminal/io.ts';
import { oneLine } from '../terminal/printable.ts';
import { version } from '../version.ts';
import { chatServer } from './chat-server.ts';
import { openConversation, showAnswer, type RemoteChat, type RemoteEnding } from './remote-chat.ts';
import {
  completeRemoteCommand,
  isRemoteCommand,
  modelOf,
  newestRemote,
  resumeRemote,
  runRemoteCommand,
  usedText,
} from './remote-commands.ts';

export interface RemoteOptions {
  readonly url: string;
  readonly model?: string | undefined;
  /** Whose tools the model has. */
  readonly device?: string | undefined;
  /** Continues the newest conversation. */
  readonly newest: boolean;
  /** Continues a conversation with these words; empty: the user chooses. */
  readonly resume?: string | undefined;
  readonly isPlain: boolean;
  readonly store: StoreLocation;
}

/** `treadle chat --url`: the screen of a chat, whose conversation is on a server. */
export async function chatWithServer(options: RemoteOptions, io: Io): Promise<number> {
  const server = chatServer((await connectToServer({ url: options.url }, options.store, io))!);
  const info = await server.info();
  const names = info.models.map(({ id }) => id);
  if (options.model !== undefined && !names.includes(options.model)) {
    throw new CommandError(`The server has no model ${options.model}. It has ${names.join(', ')}.`);
  }
  const id = options.newest ? await newestRemote({ server }) : undefined;
  const onTerminal = Boolean(io.stdin.isTTY && io.stdout.isTTY);
  const history = onTerminal ? await openHistory(options.store) : undefined;
  const status = (): string =>
    [server.url, modelOf(chat), ...(chat.used.tokens > 0 ? [usedText(chat.used)] : [])].join(' · ');
  const changes = changesElsewhere();
  const dialogue: Dialogue = !onTerminal
    ? pipedDialogue(io)
    : options.isPlain || io.env['TERM'] === 'dumb'
      ? lineDialogue(io, { history, changes })
      : screenDialogue(io, {
          history,
          status,
          savesRules: false,
          changes,
          complete: async (text, at) => completeRemoteCommand(text.slice(0, at), chat),
        });
  const chat: RemoteChat = {
    server,
    info,
    dialogue,
    io,
    isCommand: (line) => isRemoteCommand(line, info),
    conversation: undefined,
    model: options.model,
    device: options.device,
    used: { tokens: 0, cost: undefined },
    unsent: [],
  };
  try {
    for (const line of firstLines(chat, io.stdout.columns ?? 80)) dialogue.writeLine(line);
    const begun = await beginRemote(chat, { id, resume: options.resume });
    return begun.exitCode ?? (await driveRemoteChat(chat));
  } finally {
    dialogue.close();
    await history?.saved();
  }
}

/** What the chat begins with: nothing, or an earlier conversation. */
async function beginRemote(
  chat: RemoteChat,
  { id, resume }: { readonly id: string | undefined; readonly resume: string | undefined },
): Promise<RemoteEnding> {
  if (id !== undefined) return openConversation(chat, id);
  return resume === undefined ? {} : shown(chat, await resumeRemote(chat, resume));
}

function shown({ dialogue }: RemoteChat, done: string | RemoteEnding): RemoteEnding {
  if (typeof done !== 'string') return done;
  dialogue.writeLine(done);
  return {};
}

async function driveRemoteChat(chat: RemoteChat): Promise<number> {
  const { dialogue } = chat;
  for (;;) {
    const text = (chat.unsent.shift() ?? (await dialogue.nextMessage()))?.trim();
    if (text === undefined || text === '/exit') return EXIT.completed;
    if (text === '') continue;
    const { exitCode } = await respond(text, chat);
    if (exitCode !== undefined) return exitCode;
  }
}

async function respond(text: string, chat: RemoteChat): Promise<RemoteEnding> {
  const { dialogue, server, conversation, model, device } = chat;
  try {
    const done = await runRemoteCommand(text, chat);
    if (done !== undefined) return shown(chat, done);
    const about = {
      ...(conversation !== undefined && { conversation_id: conversation }),
      ...(model && { model }),
      ...(device !== undefined && { device }),
    };
    const body = { message: text, ...about, approvals: 'ask', on_disconnect: 'continue' } as const;
    return await showAnswer(chat, (signal) => server.send(body, signal));
  } catch (error) {
    dialogue.writeLine(messageOf(error));
    return {};
  }
}

function firstLines(chat: RemoteChat, width: number): readonly string[] {
  const { server, info, device } = chat;
  const tools = info.tools.filter(({ is_default }) => is_default).map(({ name }) => name);
  return [
    `Treadle ${version()}, a conversation of ${server.url}`,
    `  model    ${modelOf(chat)} (/model NAME)`,
    device === undefined
      ? `  tools    ${oneLine(tools.length === 0 ? 'none' : `${tools.length}: ${tools.join(', ')}`, width - 13)}`
      : `  tools    those of the device ${device}`,
    '  rules    the limits, the policy and the sandbox of the server apply',
    'Type a message, /help for help, Ctrl-D to leave.',
  ];
}
