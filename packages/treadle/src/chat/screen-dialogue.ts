import { addUsage, messageOf, NO_USAGE, stableJson, type Item } from '@treadle/core';
import { questionLines, shortRequestLines } from '../run/ask-approval.ts';
import type { ApprovalRequest, Decision, QuestionRequest } from '../run/drive-run.ts';
import { loadHighlight } from '../screen/highlight.ts';
import { BACKGROUND_QUERY, openKeyboard, type Key } from '../screen/keys.ts';
import { openPager, type Pager } from '../screen/pager.ts';
import type { Highlight } from '../screen/markdown.ts';
import { openScreen, type LiveLines, type ScreenSize } from '../screen/screen.ts';
import { clipLine, lineFromAnsi, lineOf, span, wrapLine, type Line, type Palette } from '../screen/spans.ts';
import { hasColours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { PASTE_OFF, PASTE_ON } from '../terminal/paste.ts';
import { oneLine } from '../terminal/printable.ts';
import type { Interrupt } from '../terminal/signals.ts';
import { confirmPanel, decisionPanel } from './decision-panel.ts';
import type { Asked } from './conversation.ts';
import type { Dialogue, ShownRun } from './dialogue.ts';
import type { LiveUse } from './facts.ts';
import type { FileChanges } from './file-changes.ts';
import { foldedLines, MAX_FOLDED, type Folded } from './folded.ts';
import { MAX_ENTRIES, NO_HISTORY, type ChatHistory } from './history.ts';
import { promptPanel, type Completion, type Panel } from './prompt-panel.ts';
import { choicePanel, questionPanel } from './question-panel.ts';
import { todoLines, todosIn, type ShownTodo } from './todo-lines.ts';
import { runView, seconds, spinner, type RunView, type ShownCall } from './run-view.ts';

export interface ScreenDialogueOptions {
  readonly history?: ChatHistory | undefined;
  /** What the line at the bottom says besides what the run does: model, tokens, cost. */
  readonly status?: (live: LiveUse) => string;
  readonly complete?: (text: string, at: number) => Promise<Completion | undefined>;
  /** The messages of the user, the newest last; Esc pressed twice edits one of them. */
  readonly asked?: () => readonly Asked[];
  /** Forgets one of them and everything after it. */
  readonly rewind?: (to: Asked) => void;
  /** Begins or ends the mode in which the next message is only planned. */
  readonly togglePlan?: () => void;
  /** Whether rules can be saved; default: yes. */
  readonly savesRules?: boolean;
  /** Shows what calls change; absent: they act elsewhere. */
  readonly changes?: FileChanges | undefined;
  readonly now?: () => number;
}

const TICK_MS = 100;
const TITLE = 'treadle';
const TITLE_PUSH = '\u001b[22;0t';
const TITLE_POP = '\u001b[23;0t';
const BELL = '\u0007';
/** After a run of this time somebody may look elsewhere. */
const LONG_MS = 10_000;
/** A decision shows so many lines of changes in the scrollback. */
const MAX_PREVIEW_LINES = 80;

/**
 * A chat on the whole terminal. The editor is open during the whole chat, so the user can type at any time:
 * 1. What is entered answers the last question. If there is none, it steers the current run.
 * 2. A decision takes single keys only if no text was being typed when it was asked for. Otherwise the text is finished first.
 * 3. A pasted text is never a decision.
 */
export function screenDialogue(io: Io, options: ScreenDialogueOptions = {}): Dialogue {
  const {
    history = NO_HISTORY,
    status = () => '',
    complete = async () => undefined,
    changes,
    now = Date.now,
  } = options;
  const entries = [...history.entries];
  const calls: ShownCall[] = [];
  const folded: Folded[] = [];
  const fold = (one: Folded): void => {
    folded.push(one);
    if (folded.length > MAX_FOLDED) folded.shift();
  };
  /** Messages that were entered before they were asked for. */
  const early: string[] = [];
  let asked: ((text: string | undefined) => void) | undefined;
  let run: StartedView | undefined;
  /** What takes the keys instead of the prompt. */
  let panel: Panel | undefined;
  /** Ends what the panel asks without an answer. */
  let dismiss: (() => void) | undefined;
  /** Takes the keys and the screen. */
  let pager: Pager | undefined;
  /** Calls with arguments that the user has written. Each is approved once. */
  const written = new Set<string>();
  let highlight: Highlight | undefined;
  let isClosed = false;
  /** A line below the prompt until the next key. */
  let hint = '';
  /** What the current run has used, and how long the conversation is. */
  let used: LiveUse = { usage: NO_USAGE, contextTokens: 0 };
  let todos: readonly ShownTodo[] = [];
  let tick: NodeJS.Timeout | undefined;

  let palette = hasColours(io.stdout, io.env) ? paletteOf(io.env) : undefined;
  const screen = openScreen(io, { palette: () => palette, live });
  const { refresh } = screen;
  const width = (): number => screen.size().columns - 1;
  const settleText = (lines: readonly string[]): void =>
    screen.settle(lines.flatMap((line) => line.split('\n')).flatMap((line) => wrapLine(lineFromAnsi(line), width())));

  const prompt = promptPanel({
    history: () => entries,
    complete,
    refresh,
    onSubmit(text, shown) {
      if (text.trim() === '') return;
      remember(text);
      const [first = '', ...more] = shown.split('\n');
      screen.settle([
        [],
        ...[`> ${first}`, ...more.map((line) => `  ${line}`)].flatMap((line) =>
          wrapLine(lineOf(line, 'bold'), width(), { indent: 2 }),
        ),
      ]);
      if (asked) resolveAsked(text);
      else if (run) run.steer(text);
      else early.push(text);
    },
    onKey,
  });

  function remember(text: string): void {
    if (entries.at(-1) !== text) entries.push(text);
    if (entries.length > MAX_ENTRIES) entries.shift();
    history.add(text);
  }

  function resolveAsked(text: string | undefined): void {
    const resolve = asked;
    asked = undefined;
    resolve?.(text);
  }

  function live(size: ScreenSize): LiveLines {
    const columns = size.columns - 1;
    const bottom = bottomLines(size);
    const state = statusLine(columns);
    // A terminal that becomes narrower wraps what is there. It has to have room for that, or it moves it into the scrollback.
    const plan = run ? todoLines(todos, columns) : [];
    const room = Math.max(1, Math.floor((size.rows - 2 - bottom.lines.length - state.length - plan.length) / 2));
    const shown = (run?.view.live(columns) ?? []).slice(-room);
    const above = [...shown, ...(shown.length > 0 || !run ? [[]] : []), ...plan, ...state];
    return {
      lines: [...above, ...bottom.lines],
      ...(bottom.cursor && { cursor: { ...bottom.cursor, line: bottom.cursor.line + above.length } }),
    };
  }

  function bottomLines(size: ScreenSize): LiveLines {
    const shown = activePanel().lines(size);
    const notes = [
      ...(hint === '' ? [] : [hint]),
      ...(panel && isDrafting() ? ['A decision waits: finish your text, or press Esc to put it aside.'] : []),
    ];
    return {
      ...shown,
      lines: [...shown.lines, ...notes.map((note) => clipLine(lineOf(note, 'dim'), size.columns - 1))],
    };
  }

  function statusLine(columns: number): readonly Line[] {
    const facts = status(used);
    if (!run) return facts === '' ? [] : [clipLine(lineOf(facts, 'dim'), columns)];
    const elapsed = seconds(now() - run.since);
    const what = panel ? 'waiting for you' : run.interrupt.signal.aborted ? 'stopping' : run.view.activity();
    const rest = [elapsed, ...(facts === '' ? [] : [facts]), 'Esc stops'].join(' · ');
    return [clipLine([span(`${spinner(now())} `, 'cyan'), span(what), span(` · ${rest}`, 'dim')], columns)];
  }

  /** Text was being typed when the decision was asked for. */
  let draftAside: string | undefined;
  const isDrafting = (): boolean => prompt.editor.state.text !== '' && draftAside === undefined;
  const activePanel = (): Panel => (panel && !isDrafting() ? panel : prompt);

  function press(key: Key): void {
    hint = '';
    if (pager) {
      pager.press(key);
      return;
    }
    if (panel && isDrafting() && key.type === 'key' && key.name === 'escape') {
      draftAside = prompt.take();
      refresh();
      return;
    }
    activePanel().press(key);
  }

  function onKey(name: string): void {
    if (name === 'ctrl-c') pressInterrupt();
    else if (name === 'escape') pressEscape();
    else if (name === 'shift-tab' && !run) options.togglePlan?.();
    else if (name === 'ctrl-d') {
      if (prompt.editor.state.text === '') leave();
      else prompt.editor.press('delete');
    } else if (name === 'ctrl-l') screen.clear();
    else if (name === 'ctrl-o') openPages((columns) => foldedLines(folded, columns), { atEnd: true });
  }

  /** Escape was the last key, without a run. */
  let hasEscaped = false;
  function pressEscape(): void {
    if (run) {
      if (!run.interrupt.signal.aborted) run.interrupt.press();
    } else if (hasEscaped) editEarlier();
    else if (prompt.editor.state.text === '') {
      hasEscaped = true;
      hint = 'Esc again edits an earlier message.';
    }
  }

  function editEarlier(): void {
    const messages = options.asked?.() ?? [];
    if (messages.length === 0) return;
    const end = (): void => {
      panel = undefined;
      refresh();
    };
    panel = choicePanel({
      title: 'Which message do you want to edit? Everything after it is left out; its runs stay in the store.',
      choices: messages.map(({ text }) => text),
      first: messages.length - 1,
      choose(index) {
        const message = messages[index]!;
        options.rewind?.(message);
        end();
        prompt.editor.set(message.text);
        settleText(['', 'Edit the message, and press Enter. The conversation goes on from there.']);
      },
      cancel: end,
    });
  }

  let hasWarned = false;
  function pressInterrupt(): void {
    if (run) {
      // The second one ends the process.
      if (run.interrupt.signal.aborted) close();
      run.interrupt.press();
    } else if (prompt.editor.state.text !== '') prompt.take();
    else if (hasWarned) leave();
    else {
      hasWarned = true;
      hint = 'Press Ctrl-C again to leave.';
      return;
    }
    hasWarned = false;
  }

  function leave(): void {
    isClosed = true;
    dismiss?.();
    resolveAsked(undefined);
  }

  const keyboard = openKeyboard(io.stdin, {
    onKey(key) {
      if (!(key.type === 'key' && key.name === 'ctrl-c')) hasWarned = false;
      if (!(key.type === 'key' && key.name === 'escape')) hasEscaped = false;
      press(key);
      refresh();
    },
    onEnd: leave,
    onBackground(isLight) {
      if (!palette) return;
      palette = isLight ? 'light' : 'dark';
      refresh();
    },
  });
  io.stdout.write(PASTE_ON + TITLE_PUSH + (palette && has256Colours(io.env) ? BACKGROUND_QUERY : ''));
  screen.signal(titleOf(TITLE));
  // Code is shown without colours until it is loaded.
  const loadLanguages = (): void => {
    loadHighlight().then(
      (loaded) => {
        highlight = loaded;
      },
      () => {},
    );
  };

  function close(): void {
    clearInterval(tick);
    keyboard.close();
    screen.close();
    io.stdout.write(PASTE_OFF + TITLE_POP);
  }

  function countUse(item: Item): void {
    todos = todosIn(item) ?? todos;
    if (item.type !== 'fact' || item.event.type !== 'model-replied') return;
    const { usage } = item.event;
    used = { usage: addUsage(used.usage, usage), contextTokens: usage.inputTokens + usage.outputTokens };
  }

  /** Says that the user is needed, also to those who look elsewhere. */
  function callUser(what: string): void {
    screen.signal(`${BELL}${titleOf(`● ${what}`)}`);
  }

  /** What a call would do: its changes to files, or its exact arguments, and everything that the policy wants to be shown. */
  function showRequest(request: ApprovalRequest): void {
    const preview = changes?.preview(request.call, width());
    if (!preview) return settleText(shortRequestLines(request, now()));
    const [head = '', ...rest] = shortRequestLines({ ...request, call: { ...request.call, ...preview.call } }, now());
    settleText([head]);
    const more = preview.lines.length - MAX_PREVIEW_LINES;
    screen.settle(preview.lines.slice(0, MAX_PREVIEW_LINES));
    if (more > 0) screen.settle([lineOf(`  and ${more} more lines: d shows all of them`, 'yellow')]);
    settleText(rest);
  }

  function pageOf({ call }: ApprovalRequest): (() => void) | undefined {
    if (!changes?.preview(call, width())) return undefined;
    return () => openPages((columns) => changes.preview(call, columns)?.lines ?? []);
  }

  function openPages(lines: (columns: number) => readonly Line[], { atEnd = false } = {}): void {
    const resume = screen.suspend();
    pager = openPager(io, {
      palette: () => palette,
      lines,
      atEnd,
      close() {
        pager = undefined;
        resume();
      },
    });
  }

  /** Shows a panel until it calls the function that it is made with, or the run is stopped. */
  function ask<Value>(make: (settle: (value: Value) => void) => Panel, without: Value): Promise<Value> {
    if (isClosed || run?.interrupt.signal.aborted) return Promise.resolve(without);
    return new Promise((resolve) => {
      const end = (value: Value): void => {
        panel = undefined;
        dismiss = undefined;
        screen.signal(titleOf(TITLE));
        if (draftAside !== undefined) prompt.editor.set(draftAside);
        draftAside = undefined;
        refresh();
        resolve(value);
      };
      dismiss = () => end(without);
      panel = make(end);
      callUser('treadle waits for you');
      refresh();
    });
  }

  return {
    async nextMessage() {
      const next = early.shift();
      if (next !== undefined) return next;
      if (isClosed) return undefined;
      refresh();
      return new Promise((resolve) => {
        asked = resolve;
      });
    },
    startRun({ interrupt, steer }): ShownRun {
      if (!highlight) loadLanguages();
      const view = runView({
        settle: screen.settle,
        refresh,
        width,
        now,
        highlight: () => highlight,
        calls,
        fold,
        changes,
      });
      run = { interrupt, steer, view, since: now() };
      const onAbort = (): void => dismiss?.();
      interrupt.signal.addEventListener('abort', onAbort);
      tick = setInterval(refresh, TICK_MS);
      screen.signal(titleOf(TITLE));
      return {
        onItem(item) {
          countUse(item);
          view.onItem(item);
        },
        endReply: () => view.end(),
        end() {
          view.end();
          if (now() - run!.since > LONG_MS) callUser('treadle is done');
          interrupt.signal.removeEventListener('abort', onAbort);
          clearInterval(tick);
          run = undefined;
          used = { ...used, usage: NO_USAGE };
          refresh();
        },
      };
    },
    async approve(request, others, explain): Promise<Decision> {
      const requests = [request, ...others];
      const known = requests.find((one) => written.delete(callKey(one.call)));
      if (known) return { approved: true, reason: 'The user wrote its arguments.', request: known };
      settleText(['']);
      showRequest(request);
      return ask<Decision>(
        (decide) =>
          decisionPanel({
            requests,
            decide,
            show: showRequest,
            replace: ({ call: { name } }, edited) =>
              void written.add(callKey({ name, arguments: JSON.stringify(edited) })),
            page: pageOf,
            savesRules: options.savesRules ?? true,
            onKey,
            refresh,
            explain:
              explain && ((one) => void explain(one).then(settleText, (error) => settleText([messageOf(error)]))),
          }),
        { approved: false, reason: 'The user said no.' },
      );
    },
    async answer(request: QuestionRequest, rejected?: string): Promise<unknown> {
      settleText(['', ...questionLines(request, rejected)]);
      const value = await ask<unknown>(
        (answer) => questionPanel({ question: request.question, answer, onKey, refresh }),
        undefined,
      );
      if (value !== undefined)
        settleText([`  ${oneLine(typeof value === 'string' ? value : JSON.stringify(value), width())}`]);
      return value;
    },
    async confirm(question) {
      settleText(['', question]);
      return ask<boolean>((answer) => confirmPanel({ answer, onKey }), false);
    },
    choose: (title, choices) =>
      ask<number | undefined>(
        (answer) => choicePanel({ title, choices, choose: answer, cancel: () => answer(undefined) }),
        undefined,
      ),
    writeLine: (line) => settleText([line]),
    outlivesInterrupt: true,
    close,
  };
}

interface StartedView {
  readonly interrupt: Interrupt;
  readonly steer: (text: string) => void;
  readonly view: RunView;
  readonly since: number;
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

function titleOf(text: string): string {
  return `\u001b]0;${text}${BELL}`;
}

/** The same for arguments with the same meaning. */
function callKey({ name, arguments: text }: { readonly name: string; readonly arguments: string }): string {
  try {
    return `${name} ${stableJson(JSON.parse(text))}`;
  } catch {
    return `${name} ${text}`;
  }
}
