import { messageOf, stableJson } from '@treadle/core';
import { questionLines, shortRequestLines } from '../run/ask-approval.ts';
import type { ApprovalRequest, Decision } from '../run/drive-run.ts';
import { openPager } from '../screen/pager.ts';
import { lineOf, type Line } from '../screen/spans.ts';
import { oneLine } from '../terminal/printable.ts';
import { confirmPanel, decisionPanel } from './decision-panel.ts';
import type { Dialogue } from './dialogue.ts';
import type { Panel } from './prompt-panel.ts';
import { choicePanel, questionPanel } from './question-panel.ts';
import { callUser, lineWidth, settleText, TITLE, titleOf, type ScreenState } from './screen-state.ts';

/** A decision shows so many lines of changes in the scrollback. */
const MAX_PREVIEW_LINES = 80;

/** What the user is asked on the screen: decisions, answers and choices. `onKey`: gets keys that what is asked does not use. */
export function screenAsking(
  state: ScreenState,
  onKey: (name: string) => void,
): Pick<Dialogue, 'approve' | 'answer' | 'confirm' | 'choose'> {
  const { refresh } = state.screen;
  /** Calls with arguments that the user has written. Each is approved once. */
  const written = new Set<string>();
  return {
    async approve(request, others, explain): Promise<Decision> {
      const requests = [request, ...others];
      const known = requests.find((one) => written.delete(callKey(one.call)));
      if (known) return { approved: true, reason: 'The user wrote its arguments.', request: known };
      showRequest(state, request);
      return ask<Decision>(
        state,
        (decide) =>
          decisionPanel({
            requests,
            decide,
            show: (one) => showRequest(state, one),
            replace: ({ call: { name } }, edited) =>
              void written.add(callKey({ name, arguments: JSON.stringify(edited) })),
            page: (one) => pageOf(state, one),
            savesRules: state.options.savesRules ?? true,
            onKey,
            refresh,
            explain:
              explain &&
              ((one) =>
                void explain(one).then(
                  (lines) => settleText(state, lines),
                  (error) => settleText(state, [messageOf(error)]),
                )),
          }),
        { approved: false, reason: 'The user said no.' },
      );
    },
    async answer(request, rejected): Promise<unknown> {
      settleText(state, ['', ...questionLines(request, rejected)]);
      const value = await ask<unknown>(
        state,
        (answer) => questionPanel({ question: request.question, answer, onKey, refresh }),
        undefined,
      );
      if (value !== undefined) {
        const text = typeof value === 'string' ? value : JSON.stringify(value);
        settleText(state, [`  ${oneLine(text, lineWidth(state))}`]);
      }
      return value;
    },
    async confirm(question) {
      settleText(state, ['', question]);
      return ask<boolean>(state, (answer) => confirmPanel({ answer, onKey }), false);
    },
    choose: (title, choices) =>
      ask<number | undefined>(
        state,
        (answer) => choicePanel({ title, choices, choose: answer, cancel: () => answer(undefined) }),
        undefined,
      ),
  };
}

/** Shows a panel until it calls the function that it is made with, or the run is stopped. */
function ask<Value>(
  state: ScreenState,
  make: (settle: (value: Value) => void) => Panel,
  without: Value,
): Promise<Value> {
  const { screen, prompt } = state;
  if (state.isClosed || state.run?.interrupt.signal.aborted) return Promise.resolve(without);
  return new Promise((resolve) => {
    const end = (value: Value): void => {
      state.panel = undefined;
      state.dismiss = undefined;
      screen.signal(titleOf(TITLE));
      if (state.draftAside !== undefined) prompt.editor.set(state.draftAside);
      state.draftAside = undefined;
      screen.refresh();
      resolve(value);
    };
    state.dismiss = () => end(without);
    state.panel = make(end);
    callUser(state, 'treadle waits for you');
    screen.refresh();
  });
}

/** What a call would do: its changes to files, or its exact arguments, and everything that the policy wants to be shown. */
function showRequest(state: ScreenState, request: ApprovalRequest): void {
  const { changes } = state.options;
  const preview = changes?.preview(request.call, lineWidth(state));
  const shown = preview ? { ...request, call: { ...request.call, ...preview.call } } : request;
  const [head = '', ...rest] = shortRequestLines(shown, state.now());
  settleText(state, ['', head]);
  const lines = preview?.lines ?? [];
  const more = lines.length - MAX_PREVIEW_LINES;
  state.screen.settle(lines.slice(0, MAX_PREVIEW_LINES));
  if (more > 0) state.screen.settle([lineOf(`  and ${more} more lines: d shows all of them`, 'yellow')]);
  settleText(state, rest);
}

function pageOf(state: ScreenState, { call }: ApprovalRequest): (() => void) | undefined {
  const { changes } = state.options;
  if (!changes?.preview(call, lineWidth(state))) return undefined;
  return () => openPages(state, (columns) => changes.preview(call, columns)?.lines ?? []);
}

/** Shows lines on a screen of their own. */
export function openPages(
  state: ScreenState,
  lines: (columns: number) => readonly Line[],
  { atEnd = false }: { readonly atEnd?: boolean } = {},
): void {
  const resume = state.screen.suspend();
  state.pager = openPager(state.io, {
    palette: () => state.palette,
    lines,
    atEnd,
    close() {
      state.pager = undefined;
      resume();
    },
  });
}

/** The same for arguments with the same meaning. */
function callKey({ name, arguments: text }: { readonly name: string; readonly arguments: string }): string {
  try {
    return `${name} ${stableJson(JSON.parse(text))}`;
  } catch {
    return `${name} ${text}`;
  }
}
