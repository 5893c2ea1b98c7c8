import { addUsage, NO_USAGE, type Item } from '@treadle/core';
import { loadHighlight } from '../screen/highlight.ts';
import { BACKGROUND_QUERY, openKeyboard } from '../screen/keys.ts';
import type { Highlight } from '../screen/markdown.ts';
import { markdownStream } from '../screen/markdown-stream.ts';
import { openScreen } from '../screen/screen.ts';
import { lineOf, wrapLine, type Palette } from '../screen/spans.ts';
import { hasColours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import { PASTE_OFF, PASTE_ON } from '../terminal/paste.ts';
import type { Dialogue, ShownRun } from './dialogue.ts';
import { MAX_FOLDED } from './folded.ts';
import { MAX_ENTRIES, NO_HISTORY } from './history.ts';
import { promptPanel } from './prompt-panel.ts';
import { runView, type ShownCall } from './run-view.ts';
import { screenAsking } from './screen-asking.ts';
import { leave, pressBeyond, pressKey, promptKeys } from './screen-keys.ts';
import { liveLines } from './screen-lines.ts';
import {
  callUser,
  lineWidth,
  resolveAsked,
  settleText,
  TITLE,
  titleOf,
  type ScreenDialogueOptions,
  type ScreenState,
} from './screen-state.ts';
import { todosIn } from './todo-lines.ts';

const TICK_MS = 100;
const TITLE_PUSH = '\u001b[22;0t';
const TITLE_POP = '\u001b[23;0t';
/** After a run of this time somebody may look elsewhere. */
const LONG_MS = 10_000;
const MAX_EARLIER_LINES = 10;

/**
 * A chat on the whole terminal. The editor is open during the whole chat, so the user can type at any time:
 * 1. What is entered answers the last question. If there is none, it steers the current run.
 * 2. A decision takes single keys only if no text was being typed when it was asked for. Otherwise the text is finished first.
 * 3. A pasted text is never a decision.
 */
export function screenDialogue(io: Io, options: ScreenDialogueOptions = {}): Dialogue {
  const { history = NO_HISTORY } = options;
  const entries = [...history.entries];
  /** Messages that were entered before they were asked for. */
  const early: string[] = [];
  const onKey = (name: string): void => pressBeyond(state, name, { close, pauseKeys: () => keyboard.pause() });
  const state: ScreenState = {
    io,
    options,
    now: options.now ?? Date.now,
    screen: openScreen(io, { palette: () => state.palette, live: (size) => liveLines(state, size) }),
    prompt: promptPanel({
      history: () => entries,
      complete: options.complete ?? (async () => undefined),
      refresh: () => state.screen.refresh(),
      onSubmit: submit,
      onKey,
    }),
    palette: hasColours(io.stdout, io.env) ? paletteOf(io.env) : undefined,
    asked: undefined,
    run: undefined,
    panel: undefined,
    dismiss: undefined,
    pager: undefined,
    draftAside: undefined,
    hint: '',
    usage: NO_USAGE,
    todos: [],
    folded: [],
    isClosed: false,
    hasEscaped: false,
    hasWarned: false,
  };
  const { screen } = state;

  function submit(text: string, shown: string): void {
    if (text.trim() === '') return;
    if (entries.at(-1) !== text) entries.push(text);
    if (entries.length > MAX_ENTRIES) entries.shift();
    history.add(text);
    settleAsked(state, shown);
    if (state.asked) resolveAsked(state, text);
    else if (state.run) state.run.steer(text);
    else early.push(text);
  }

  const keyboard = openKeyboard(io.stdin, {
    onKey: (key) => pressKey(state, key),
    onEnd: () => leave(state),
    onBackground(isLight) {
      if (!state.palette) return;
      state.palette = isLight ? 'light' : 'dark';
      screen.refresh();
    },
  });
  io.stdout.write(PASTE_ON + TITLE_PUSH + (state.palette && has256Colours(io.env) ? BACKGROUND_QUERY : ''));
  screen.signal(titleOf(TITLE));
  const runs = runShower(state);

  function close(): void {
    runs.stop();
    keyboard.close();
    screen.close();
    io.stdout.write(PASTE_OFF + TITLE_POP);
  }

  return {
    async nextMessage() {
      const next = early.shift();
      if (next !== undefined) return next;
      if (state.isClosed) return undefined;
      screen.refresh();
      return new Promise((resolve) => {
        state.asked = resolve;
      });
    },
    startRun: runs.start,
    ...screenAsking(state, onKey),
    writeLine: (line) => settleText(state, [line]),
    showEarlier({ asked, reply }) {
      const lines = printable(asked).split('\n');
      const more = lines.length - MAX_EARLIER_LINES;
      settleAsked(state, lines.slice(0, MAX_EARLIER_LINES).join('\n') + (more > 0 ? `\n… ${more} more lines` : ''));
      const markdown = { width: lineWidth(state), highlight: undefined };
      const stream = markdownStream();
      const shown = [...stream.add(reply, markdown), ...stream.end(markdown)];
      if (shown.length > 0) screen.settle([[], ...shown]);
    },
    keys: promptKeys(state),
    outlivesInterrupt: true,
    close,
  };
}

/** A message of the user, in the scrollback. */
function settleAsked(state: ScreenState, text: string): void {
  const [first = '', ...more] = text.split('\n');
  const lines = [`> ${first}`, ...more.map((line) => `  ${line}`)];
  const width = lineWidth(state);
  state.screen.settle([[], ...lines.flatMap((line) => wrapLine(lineOf(line, 'bold'), width, { indent: 2 }))]);
}

/** Shows one run after the other. */
function runShower(state: ScreenState): { readonly start: Dialogue['startRun']; stop(): void } {
  const { screen, folded, now } = state;
  /** All calls of the chat. */
  const calls: ShownCall[] = [];
  let tick: NodeJS.Timeout | undefined;
  // Code is shown without colours until it is loaded.
  let highlight: Highlight | undefined;
  const loadLanguages = (): void => {
    loadHighlight().then(
      (loaded) => {
        highlight = loaded;
      },
      () => {},
    );
  };
  const note = (item: Item): void => {
    state.todos = todosIn(item) ?? state.todos;
    if (item.type !== 'fact' || item.event.type !== 'model-replied') return;
    state.usage = addUsage(state.usage, item.event.usage);
  };
  return {
    start(started): ShownRun {
      const { interrupt } = started;
      if (!highlight) loadLanguages();
      const view = runView({
        settle: screen.settle,
        refresh: screen.refresh,
        width: () => lineWidth(state),
        now,
        highlight: () => highlight,
        calls,
        fold(one) {
          folded.push(one);
          if (folded.length > MAX_FOLDED) folded.shift();
        },
        changes: state.options.changes,
      });
      const since = now();
      state.run = { ...started, view, since };
      const onAbort = (): void => state.dismiss?.();
      interrupt.signal.addEventListener('abort', onAbort);
      tick = setInterval(screen.refresh, TICK_MS);
      screen.signal(titleOf(TITLE));
      return {
        onItem(item) {
          note(item);
          view.onItem(item);
        },
        endReply: () => view.end(),
        end() {
          view.end();
          if (now() - since > LONG_MS) callUser(state, 'treadle is done');
          interrupt.signal.removeEventListener('abort', onAbort);
          clearInterval(tick);
          state.run = undefined;
          state.usage = NO_USAGE;
          screen.refresh();
        },
      };
    },
    stop: () => clearInterval(tick),
  };
}

function has256Colours({ TERM = '', COLORTERM = '' }: Io['env']): boolean {
  return TERM.includes('256color') || COLORTERM !== '';
}

/** What the environment says about the background, such as `0;15`, until the terminal answers. */
function paletteOf(env: Io['env']): Palette {
  const background = Number(env['COLORFGBG']?.split(';').at(-1) ?? NaN);
  if (!Number.isInteger(background) || !has256Colours(env)) return 'standard';
  return background === 7 || background === 15 ? 'light' : 'dark';
}
