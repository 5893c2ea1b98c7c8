import { openEditor, type Editor } from '../screen/editor.ts';
import type { Key } from '../screen/keys.ts';
import { clipLine, lineOf, span, wrapLine, type Line } from '../screen/spans.ts';
import { touchText } from '../run/ask-approval.ts';
import type { ApprovalRequest, Decision } from '../run/drive-run.ts';
import { isNarrow, withoutAmounts } from '../policy/saved-rules.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';
import { subjectOf } from './call-text.ts';
import { editorLines, type Panel } from './prompt-panel.ts';

/** What a key does, as the panel shows it. */
export interface KeyHelp {
  readonly key: string;
  readonly does: string;
}

/** A line of keys: `y yes · n no`. */
export function keyLine(keys: readonly KeyHelp[], width: number): readonly Line[] {
  const line = keys.flatMap(({ key, does }, index) => [
    ...(index > 0 ? [span(' · ', 'dim')] : []),
    span(key, 'bold'),
    span(` ${does}`),
  ]);
  return wrapLine(line, width);
}

/** Answers a question of the program with y or n. */
export function confirmPanel(options: {
  readonly answer: (yes: boolean) => void;
  readonly onKey: (name: string) => void;
}): Panel {
  return {
    press(key) {
      const name = key.type === 'paste' ? '' : key.type === 'text' ? key.text.toLowerCase() : key.name;
      if (name === 'y' || name === 'n') options.answer(name === 'y');
      else if (name === 'escape' || name === 'ctrl-c') options.answer(false);
      else if (key.type === 'key') options.onKey(name);
    },
    lines: ({ columns }) => ({
      lines: keyLine(
        [
          { key: 'y', does: 'yes' },
          { key: 'n', does: 'no' },
        ],
        columns - 1,
      ),
    }),
  };
}

export interface DecisionOptions {
  /** What waits for a decision. The first one is shown above. */
  readonly requests: readonly ApprovalRequest[];
  readonly decide: (decision: Decision) => void;
  /** Shows another one above. */
  readonly show: (request: ApprovalRequest) => void;
  readonly explain?: ((request: ApprovalRequest) => void) | undefined;
  /** The user has written other arguments for the call. */
  readonly replace: (request: ApprovalRequest, edited: object) => void;
  /** Shows the changes of a call on a screen of their own. Undefined: it has none. */
  readonly page?: ((request: ApprovalRequest) => (() => void) | undefined) | undefined;
  /** Whether `p` saves a rule. */
  readonly savesRules: boolean;
  readonly onKey: (name: string) => void;
  readonly refresh: () => void;
}

/**
 * Takes the decision about a call with one key. What the call would do is in the lines above. A pasted text decides nothing,
 * and neither does a key without a meaning.
 */
export function decisionPanel(options: DecisionOptions): Panel {
  const { requests, decide, show, explain, replace, page, onKey, refresh } = options;
  let at = 0;
  /** Set while the user writes why not, or other arguments. */
  let writing: { readonly what: 'reason' | 'arguments'; readonly editor: Editor } | undefined;
  /** The rule is shown, and is saved with y. */
  let isSaving = false;
  let problem: string | undefined;
  const current = (): ApprovalRequest => requests[at]!;
  const decideOn = (decision: Decision): void => decide({ ...decision, request: current() });
  const move = (by: number): void => {
    if (requests.length === 1) return;
    at = (at + by + requests.length) % requests.length;
    show(current());
  };
  const maySave = (): boolean => options.savesRules && !current().eachTime && isNarrow(current().touches);
  const keys = (): readonly KeyHelp[] => [
    { key: 'y', does: 'yes' },
    { key: 'n', does: 'no' },
    // The rule may ask each time.
    ...(current().eachTime ? [] : [{ key: 'a', does: 'always in this conversation' }]),
    ...(maySave() ? [{ key: 'p', does: 'save a rule' }] : []),
    { key: 'e', does: 'edit' },
    ...(page?.(current()) ? [{ key: 'd', does: 'diff' }] : []),
    ...(explain ? [{ key: '?', does: 'why it asks' }] : []),
  ];
  const write = (what: 'reason' | 'arguments', text: string): void => {
    const editor = openEditor();
    editor.set(text);
    writing = { what, editor };
    problem = undefined;
  };
  const pressKey = (name: string): void => {
    if (name === 'y') decideOn({ approved: true });
    else if (name === 'a' && !current().eachTime) decideOn({ approved: true, forRun: true });
    else if (name === 'p' && maySave()) isSaving = true;
    else if (name === 'n') write('reason', '');
    else if (name === 'e') write('arguments', prettyArguments(current().call.arguments));
    else if (name === 'd') page?.(current())?.();
    else if (name === '?') explain?.(current());
    else if (name === 'up' || name === 'shift-tab') move(-1);
    else if (name === 'down' || name === 'tab') move(1);
    else onKey(name);
  };
  const submit = (what: 'reason' | 'arguments', text: string): void => {
    if (what === 'reason') {
      decideOn({ approved: false, reason: text === '' ? 'The user said no.' : `The user said no: ${text}` });
      return;
    }
    const edited = objectIn(text);
    if (edited === undefined) {
      problem = 'These arguments are not a JSON object.';
      return;
    }
    replace(current(), edited);
    decideOn({ approved: false, reason: editedReason(edited) });
  };
  const pressWriting = (key: Key, { what, editor }: NonNullable<typeof writing>): void => {
    if (key.type === 'text') editor.insert(key.text);
    else if (key.type === 'paste') {
      for (const [index, line] of key.text.split('\n').entries()) {
        if (index > 0) editor.press('ctrl-j');
        editor.insert(line);
      }
    } else if (key.name === 'enter') submit(what, editor.whole().trim());
    else if (key.name === 'escape') writing = undefined;
    else if (!editor.press(key.name)) onKey(key.name);
  };
  const pressSaving = (key: Key): void => {
    if (key.type === 'text' && key.text.toLowerCase() === 'y') decideOn({ approved: true, forRun: true, saved: true });
    else if (key.type === 'key' && key.name === 'ctrl-c') onKey(key.name);
    else if (key.type !== 'paste') isSaving = false;
  };
  const writingLines = (
    { what, editor }: NonNullable<typeof writing>,
    width: number,
    rows: number,
  ): ReturnType<Panel['lines']> => {
    const { lines, cursor } = editorLines(
      editor,
      width,
      Math.max(1, rows - 5),
      what === 'reason' ? 'Why not? ' : 'Arguments: ',
    );
    const enter = what === 'reason' ? 'says no, with or without a reason' : 'asks the model for this call instead';
    const hint = keyLine(
      [
        { key: 'Enter', does: enter },
        { key: 'Esc', does: 'back' },
      ],
      width,
    );
    const problems = problem === undefined ? [] : [lineOf(problem, 'red')];
    return { lines: [...lines, ...problems, ...hint], ...(cursor && { cursor }) };
  };
  return {
    press(key) {
      if (writing) pressWriting(key, writing);
      else if (isSaving) pressSaving(key);
      else if (key.type === 'text') pressKey([...key.text][0]!.toLowerCase());
      else if (key.type === 'key') pressKey(key.name);
      refresh();
    },
    lines({ columns, rows }) {
      const width = columns - 1;
      if (writing) return writingLines(writing, width, rows);
      if (isSaving) return { lines: savingLines(current(), width) };
      const list = requests.length > 1 ? requestList(requests, at, width, Math.max(1, rows - 6)) : [];
      return { lines: [...list, [span('Allow it?', 'bold', 'yellow')], ...keyLine(keys(), width)] };
    },
  };
}

/** The rule exactly, before it is saved. */
function savingLines({ call, touches = [] }: ApprovalRequest, width: number): readonly Line[] {
  const where = call.sandbox ? ', in the same sandbox' : '';
  return [
    ...wrapLine(lineOf(`In this folder, ${exactLine(call.name)} may always do exactly this${where}:`, 'bold'), width),
    ...withoutAmounts(touches)
      .flatMap((touch) => touchText(touch).split('\n'))
      .flatMap((text) => wrapLine(lineOf(`  ${text}`), width, { indent: 4, breaks: 'anywhere' })),
    ...wrapLine(lineOf('The rule is saved in .treadle/rules.json, and ends when the tool changes.', 'dim'), width),
    ...keyLine(
      [
        { key: 'y', does: 'save and allow' },
        { key: 'Esc', does: 'back' },
      ],
      width,
    ),
  ];
}

/** The calls that wait, each on a line, around the chosen one. */
function requestList(requests: readonly ApprovalRequest[], at: number, width: number, most: number): readonly Line[] {
  const first = Math.min(Math.max(0, at - most + 1), Math.max(0, requests.length - most));
  const lines = requests.slice(first, first + most).map(({ call }, index): Line => {
    const text = oneLine(`${exactLine(call.name)} ${exactLine(subjectOf(call))}`, width);
    return clipLine(first + index === at ? [span('❯ ', 'cyan'), span(text, 'bold')] : [span(`  ${text}`)], width);
  });
  return [lineOf(`${requests.length} calls wait for a decision. The arrow keys choose one.`, 'dim'), ...lines];
}

function prettyArguments(text: string): string {
  const value = objectIn(text);
  return value === undefined ? text : JSON.stringify(value, null, 2);
}

function objectIn(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** For the model. The call that follows is approved if it is exactly this one. */
function editedReason(edited: object): string {
  return `The user changed the arguments. Make the call again with exactly these: ${JSON.stringify(edited)}`;
}
