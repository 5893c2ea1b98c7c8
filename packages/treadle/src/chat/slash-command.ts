import type { RunStore, Usage } from '@treadle/core';
import type { LocationValues } from '../command-line/flags.ts';
import type { Session } from '../run/session.ts';
import type { Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import type { Conversation, Ending } from './conversation.ts';
import type { Titles } from './conversations.ts';
import type { Dialogue } from './dialogue.ts';
import type { FileChanges } from './file-changes.ts';

/** What a chat has used since it was started. */
export interface Spent {
  readonly messages: number;
  readonly turns: number;
  readonly calls: number;
  readonly usage: Usage;
}

/** What the commands of a chat work with. */
export interface Chat {
  readonly session: Session;
  readonly store: RunStore;
  readonly conversation: Conversation;
  readonly dialogue: Dialogue;
  readonly titles: Titles;
  /** Absent: what calls change is elsewhere, or is not shown. */
  readonly changes: FileChanges | undefined;
  readonly colours: Colours;
  readonly io: Io;
  /** Where the store, the configuration and the working folder are. */
  readonly location: LocationValues;
  width(): number;
}

export interface SlashCommand {
  readonly help: string;
  /** What the command takes, as the help shows it. */
  readonly argument?: string;
  /** What the argument can be. */
  readonly choices?: (chat: Chat) => readonly string[];
  /** It only shows something, so it can run while the model works. */
  readonly anytime?: true;
  /** A text to show, or how the run ended that it has started. Rejects with a message for the user. */
  readonly run: (chat: Chat, argument: string) => Promise<string | Ending>;
}

export type SlashCommands = Readonly<Record<string, SlashCommand>>;
