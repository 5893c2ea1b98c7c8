import type { Usage } from '@treadle/core';
import type { Pager } from '../screen/pager.ts';
import type { Screen } from '../screen/screen.ts';
import { lineFromAnsi, wrapLine, type Palette } from '../screen/spans.ts';
import type { Io } from '../terminal/io.ts';
import type { Asked } from './conversation.ts';
import type { StartedRun } from './dialogue.ts';
import type { LiveUse } from './facts.ts';
import type { CallChanges } from './file-changes.ts';
import type { Folded } from './folded.ts';
import type { ChatHistory } from './history.ts';
import type { Completion, Panel, PromptPanel } from './prompt-panel.ts';
import type { RunView } from './run-view.ts';
import type { ShownTodo } from './todo-lines.ts';

export interface ScreenDialogueOptions {
  readonly history?: ChatHistory | undefined;
  /** What the line at the bottom says besides what the run does: model, tokens, cost. */
  readonly status?: (live: LiveUse) => string;
  readonly complete?: (text: string, at: number) => Promise<Completion | undefined>;
  /** The messages of the user, the newest last; Esc pressed twice edits one of them. */
  readonly asked?: () => readonly Asked[];
  /** Goes on before one of them, in a fork. */
  readonly rewind?: (to: Asked) => void;
  /** Begins or ends the mode in which the next message is only planned. */
  readonly togglePlan?: () => void;
  /** Whether rules can be saved; default: yes. */
  readonly savesRules?: boolean;
  /** Shows what calls change. */
  readonly changes?: CallChanges | undefined;
  readonly now?: () => number;
}

export interface StartedView extends StartedRun {
  readonly view: RunView;
  readonly since: number;
}

/** What the parts of a chat on the whole terminal share. */
export interface ScreenState {
  readonly io: Io;
  readonly options: ScreenDialogueOptions;
  readonly now: () => number;
  readonly screen: Screen;
  readonly prompt: PromptPanel;
  palette: Palette | undefined;
  /** Resolves the question for the next message. */
  asked: ((text: string | undefined) => void) | undefined;
  run: StartedView | undefined;
  /** What takes the keys instead of the prompt. */
  panel: Panel | undefined;
  /** Ends what the panel asks without an answer. */
  dismiss: (() => void) | undefined;
  /** Takes the keys and the screen. */
  pager: Pager | undefined;
  /** Text that was being typed when a decision was asked for, and was put aside. */
  draftAside: string | undefined;
  /** A line below the prompt until the next key. */
  hint: string;
  /** What the current run has used. */
  usage: Usage;
  todos: readonly ShownTodo[];
  readonly folded: Folded[];
  isClosed: boolean;
  /** Escape was the last key, without a run. */
  hasEscaped: boolean;
  /** Ctrl-C was the last key, without a run and a text. */
  hasWarned: boolean;
}

const BELL = '\u0007';
export const TITLE = 'treadle';

export function titleOf(text: string): string {
  return `\u001b]0;${text}${BELL}`;
}

/** Says that the user is needed, also to those who look elsewhere. */
export function callUser({ screen }: ScreenState, what: string): void {
  screen.signal(`${BELL}${titleOf(`● ${what}`)}`);
}

/** Lines are one column narrower than the terminal. */
export function lineWidth({ screen }: ScreenState): number {
  return screen.size().columns - 1;
}

/** Adds texts of the program above the live lines. */
export function settleText(state: ScreenState, lines: readonly string[]): void {
  const width = lineWidth(state);
  state.screen.settle(lines.flatMap((line) => line.split('\n')).flatMap((line) => wrapLine(lineFromAnsi(line), width)));
}

/** Text was being typed when the decision was asked for. */
export function isDrafting({ prompt, draftAside }: ScreenState): boolean {
  return prompt.editor.state.text !== '' && draftAside === undefined;
}

export function activePanel(state: ScreenState): Panel {
  return state.panel && !isDrafting(state) ? state.panel : state.prompt;
}

/** Answers what was asked for: a message, or that the user leaves. */
export function resolveAsked(state: ScreenState, text: string | undefined): void {
  const resolve = state.asked;
  state.asked = undefined;
  resolve?.(text);
}
