import { messageOf } from '@treadle/core';
import type { Key } from '../screen/keys.ts';
import { PASTE_OFF, PASTE_ON } from '../terminal/paste.ts';
import { editOutside } from './external-editor.ts';
import { choicePanel } from './question-panel.ts';
import { foldedLines } from './folded.ts';
import { openPages } from './screen-asking.ts';
import { activePanel, isDrafting, resolveAsked, settleText, type ScreenState } from './screen-state.ts';

/** What keys do at the prompt, for help. */
export function promptKeys({ io, options }: ScreenState): readonly (readonly [string, string])[] {
  return [
    ['Alt+Enter, Ctrl+J', 'A new line; so are \\ and Enter'],
    ['Up, Ctrl+R', 'Earlier messages, and search in them'],
    ['Tab', 'Complete /commands, their arguments and @files'],
    ['Esc', `Stop the run${options.rewind ? '; twice without a run: edit an earlier message in a fork' : ''}`],
    ...(options.togglePlan ? ([['Shift+Tab', 'Plan first, or not']] as const) : []),
    ...(io.runOnTerminal ? ([['Ctrl+G', 'Write the message with $VISUAL or $EDITOR']] as const) : []),
    ['Ctrl+O', 'Show reasoning, and calls with their arguments and all of their output'],
    ...(io.stop ? ([['Ctrl+Z', 'Stop the chat; fg in the shell continues it']] as const) : []),
  ];
}

/** Gives a key to what is in front: the pager, what is asked, or the prompt. */
export function pressKey(state: ScreenState, key: Key): void {
  const { panel, pager, prompt, screen } = state;
  const name = key.type === 'key' ? key.name : undefined;
  if (name !== 'ctrl-c') state.hasWarned = false;
  if (name !== 'escape') state.hasEscaped = false;
  state.hint = '';
  if (pager) pager.press(key);
  else if (panel && isDrafting(state) && name === 'escape') state.draftAside = prompt.take();
  else activePanel(state).press(key);
  screen.echo();
}

/** Keys that neither the prompt nor what is asked uses. */
export function pressBeyond(
  state: ScreenState,
  name: string,
  { close, pauseKeys }: { readonly close: () => void; readonly pauseKeys: () => () => void },
): void {
  const { prompt, options, run, screen, folded } = state;
  if (name === 'ctrl-c') pressInterrupt(state, close);
  else if (name === 'escape') pressEscape(state);
  else if (name === 'shift-tab' && !run) options.togglePlan?.();
  else if (name === 'ctrl-d') {
    if (prompt.editor.state.text === '') leave(state);
    else prompt.editor.press('delete');
  } else if (name === 'ctrl-l') screen.clear();
  else if (name === 'ctrl-z') stopProcess(state, pauseKeys);
  else if (name === 'ctrl-g') editMessage(state, pauseKeys);
  else if (name === 'ctrl-o') openPages(state, (columns) => foldedLines(folded, columns), { atEnd: true });
}

/** Gives the terminal away until the returned function is called. */
function leaveTerminal({ io, screen }: ScreenState, pauseKeys: () => () => void): () => void {
  const showAgain = screen.suspend();
  const readAgain = pauseKeys();
  io.stdout.write(PASTE_OFF);
  return () => {
    io.stdout.write(PASTE_ON);
    readAgain();
    showAgain();
  };
}

/** The shell has the terminal until it continues the chat. */
function stopProcess(state: ScreenState, pauseKeys: () => () => void): void {
  if (state.io.stop) state.io.stop(leaveTerminal(state, pauseKeys));
}

/** Edits the message with the editor of the user. */
function editMessage(state: ScreenState, pauseKeys: () => () => void): void {
  const { io, prompt } = state;
  const { env, runOnTerminal } = io;
  if (!runOnTerminal || activePanel(state) !== prompt) return;
  const back = leaveTerminal(state, pauseKeys);
  void editOutside(prompt.editor.whole(), { env, runOnTerminal })
    .then(prompt.editor.set, (error: unknown) => {
      state.hint = messageOf(error);
    })
    .finally(back);
}

function pressEscape(state: ScreenState): void {
  const { run, prompt } = state;
  if (run) {
    if (!run.interrupt.signal.aborted) run.interrupt.press();
  } else if (state.hasEscaped) editEarlier(state);
  else if (prompt.editor.state.text === '') {
    state.hasEscaped = true;
    state.hint = 'Esc again edits an earlier message.';
  }
}

function editEarlier(state: ScreenState): void {
  const { options, prompt, screen } = state;
  state.hasEscaped = false;
  const messages = options.asked?.() ?? [];
  if (messages.length === 0) {
    state.hint = 'There is no earlier message to edit.';
    return;
  }
  const end = (): void => {
    state.panel = undefined;
    screen.refresh();
  };
  state.panel = choicePanel({
    title:
      'Which message do you want to edit? A fork goes on from there. The conversation stays as it is: see /resume.',
    choices: messages.map(({ text }) => text),
    first: messages.length - 1,
    choose(index) {
      const message = messages[index]!;
      options.rewind?.(message);
      end();
      prompt.editor.set(message.text);
      settleText(state, ['', 'Edit the message, and press Enter. The conversation goes on from there.']);
    },
    cancel: end,
  });
}

function pressInterrupt(state: ScreenState, close: () => void): void {
  const { run, prompt } = state;
  if (run) {
    // The second one ends the process.
    if (run.interrupt.signal.aborted) close();
    run.interrupt.press();
  } else if (prompt.editor.state.text !== '') prompt.take();
  else if (state.hasWarned) leave(state);
  else {
    state.hasWarned = true;
    state.hint = 'Press Ctrl-C again to leave.';
    return;
  }
  state.hasWarned = false;
}

export function leave(state: ScreenState): void {
  const { run } = state;
  state.isClosed = true;
  if (run && !run.leave) state.hint = 'The chat ends when the answer is done. Esc stops it.';
  state.dismiss?.();
  run?.leave?.();
  resolveAsked(state, undefined);
}
