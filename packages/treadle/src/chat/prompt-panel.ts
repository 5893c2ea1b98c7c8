import { openEditor, type Editor } from '../screen/editor.ts';
import type { Key } from '../screen/keys.ts';
import type { LiveLines, ScreenSize } from '../screen/screen.ts';
import { clipLine, lineOf, span, wrapText, type Line } from '../screen/spans.ts';
import { columnsOf, oneLine, printable } from '../terminal/printable.ts';

/** What can stand in the place of a part of the message. */
export interface Completion {
  readonly from: number;
  readonly to: number;
  readonly choices: readonly Choice[];
}

export interface Choice {
  /** What is inserted. */
  readonly text: string;
  readonly help?: string;
}

/** Part of the screen that takes the keys. */
export interface Panel {
  lines(size: ScreenSize): LiveLines;
  press(key: Key): void;
}

export interface PromptPanel extends Panel {
  readonly editor: Editor;
  /** The text that was entered, without pressing Enter. */
  take(): string;
}

export interface PromptOptions {
  /** Messages of earlier, the newest is the last. */
  readonly history: () => readonly string[];
  readonly complete: (text: string, at: number) => Promise<Completion | undefined>;
  readonly onSubmit: (text: string, shown: string) => void;
  /** A key that the editor does not use. */
  readonly onKey: (name: string) => void;
  readonly refresh: () => void;
}

const PROMPT = '> ';
const MENU_ROWS = 8;

/** The line editor at the bottom: history, search in it, and completion. */
export function promptPanel(options: PromptOptions): PromptPanel {
  const { history, complete, onSubmit, onKey, refresh } = options;
  const editor = openEditor();
  /** The place in the history, from its end; 0: the message that is being written. */
  let place = 0;
  let draft = '';
  let search: { query: string; skip: number } | undefined;
  let menu: (Completion & { chosen: number }) | undefined;
  /** Completions that were asked for before the text changed are dropped. */
  let asked = 0;
  /** The menu was not asked for with Tab. */
  let isSuggested = false;

  const recall = (to: number): void => {
    const entries = history();
    const next = Math.min(Math.max(to, 0), entries.length);
    if (next === place) return;
    if (place === 0) draft = editor.whole();
    place = next;
    editor.set(place === 0 ? draft : entries[entries.length - place]!);
  };
  const found = ({ query, skip }: { readonly query: string; readonly skip: number }): string | undefined => {
    const matches = history()
      .toReversed()
      .filter((entry) => entry.toLowerCase().includes(query.toLowerCase()));
    return [...new Set(matches)][skip];
  };
  const submit = (): void => {
    const { text, at } = editor.state;
    if (text.slice(0, at).endsWith('\\')) return editor.replace(at - 1, at, '\n');
    const whole = editor.whole();
    clear();
    onSubmit(whole, text);
  };
  const clear = (): void => {
    editor.set('');
    place = 0;
    draft = '';
    menu = undefined;
  };
  const choose = (index: number): void => {
    if (!menu) return;
    const { choices, from, to } = menu;
    const { text } = choices[index]!;
    editor.replace(from, to, text);
    menu = { ...menu, chosen: index, to: from + text.length };
  };
  const openMenu = async (): Promise<void> => {
    const ticket = ++asked;
    const { text, at } = editor.state;
    const completion = await complete(text, at).catch(() => undefined);
    if (ticket !== asked || editor.state.text !== text || editor.state.at !== at) return;
    if (!completion || completion.choices.length === 0) return;
    const { choices, from, to } = completion;
    const shared = choices.length === 1 ? choices[0]!.text : sharedStart(choices.map((choice) => choice.text));
    if (shared.length > to - from && shared.startsWith(text.slice(from, to))) {
      editor.replace(from, to, shared);
      if (choices.length > 1) menu = { from, to: from + shared.length, choices, chosen: -1 };
    } else if (choices.length === 1) editor.replace(from, to, shared);
    else menu = { ...completion, chosen: -1 };
    refresh();
  };
  /** Shows the commands while one is typed. Tab and the arrow keys take one. */
  const suggest = async (): Promise<void> => {
    const ticket = asked;
    const { text, at } = editor.state;
    if (!/^\/[a-z0-9-]*$/.test(text) || at !== text.length) return;
    const completion = await complete(text, at).catch(() => undefined);
    if (ticket !== asked || editor.state.text !== text || !completion || completion.choices.length === 0) return;
    menu = { ...completion, chosen: -1 };
    refresh();
  };
  const pressInSearch = (key: Key): boolean => {
    if (!search) return false;
    if (key.type === 'text') search = { query: search.query + key.text, skip: 0 };
    else if (key.type === 'paste') search = { query: search.query + printable(key.text.split('\n')[0]!), skip: 0 };
    else if (key.name === 'ctrl-r' || key.name === 'up') {
      if (found({ ...search, skip: search.skip + 1 }) !== undefined) search.skip++;
    } else if (key.name === 'down') search.skip = Math.max(0, search.skip - 1);
    else if (key.name === 'backspace') search = { query: search.query.slice(0, -1), skip: 0 };
    else {
      const text = key.name === 'escape' || key.name === 'ctrl-c' || key.name === 'ctrl-g' ? undefined : found(search);
      search = undefined;
      if (text !== undefined) editor.set(text);
      return key.name === 'enter' || text === undefined || key.name === 'tab';
    }
    return true;
  };
  const pressInMenu = (key: Key): boolean => {
    if (!menu || key.type !== 'key') return false;
    const { chosen, choices } = menu;
    const last = choices.length - 1;
    // Tab completes what all have in common first.
    if (key.name === 'tab' && chosen < 0 && isSuggested) return false;
    if (key.name === 'tab' || key.name === 'down') choose(chosen >= last ? 0 : chosen + 1);
    else if (key.name === 'shift-tab' || key.name === 'up') choose(chosen <= 0 ? last : chosen - 1);
    else if (key.name === 'escape') menu = undefined;
    // Enter takes the choice, and does not send the message yet.
    else if (key.name === 'enter' && chosen >= 0) menu = undefined;
    else return false;
    return true;
  };
  const press = (key: Key): void => {
    if (pressInSearch(key) || pressInMenu(key)) return;
    menu = undefined;
    asked++;
    isSuggested = key.type === 'text' || (key.type === 'key' && key.name === 'backspace');
    if (key.type === 'text') editor.insert(key.text);
    else if (key.type === 'paste') editor.paste(key.text);
    else if (key.name === 'enter') submit();
    else if (key.name === 'tab') void openMenu();
    else if (key.name === 'ctrl-r') search = { query: '', skip: 0 };
    else if (!editor.press(key.name)) pressBeyond(key.name);
    if (isSuggested) void suggest();
  };
  /** Keys that the editor does not use. */
  const pressBeyond = (name: string): void => {
    if (name === 'up' || name === 'ctrl-p') recall(place + 1);
    else if (name === 'down' || name === 'ctrl-n') recall(place - 1);
    else onKey(name);
  };
  return {
    editor,
    take() {
      const whole = editor.whole();
      clear();
      return whole;
    },
    press(key) {
      press(key);
      refresh();
    },
    lines({ columns, rows }) {
      if (search) {
        const match = found(search);
        const label = `search: ${search.query}`;
        return {
          lines: [lineOf(label), lineOf(match === undefined ? 'no match' : oneLine(match, columns - 1), 'dim')],
          cursor: { line: 0, before: label },
        };
      }
      const shown = editorLines(editor, columns - 1, Math.max(3, Math.floor(rows / 2)));
      return menu ? { ...shown, lines: [...shown.lines, ...menuLines(menu, columns - 1)] } : shown;
    },
  };
}

/** The text of an editor behind a prompt, wrapped. Of a long text the part around the cursor. */
export function editorLines(editor: Editor, width: number, maxLines: number, prompt: string = PROMPT): LiveLines {
  const { text, at } = editor.state;
  const margin = ' '.repeat(columnsOf(prompt));
  const room = Math.max(1, width - columnsOf(prompt));
  const lines: Line[] = [];
  let cursor = { line: 0, before: prompt };
  let offset = 0;
  for (const [index, row] of text.split('\n').entries()) {
    const parts = wrapText(row, room);
    let start = offset;
    for (const [part, one] of parts.entries()) {
      const lead = index === 0 && part === 0 ? prompt : margin;
      const isLast = part === parts.length - 1;
      if (at >= start && (at < start + one.length || (isLast && at <= start + one.length))) {
        cursor = { line: lines.length, before: lead + one.slice(0, at - start) };
      }
      lines.push([span(lead, 'dim'), span(one)]);
      start += one.length;
    }
    offset += row.length + 1;
  }
  if (lines.length <= maxLines) return { lines, cursor };
  const first = Math.min(Math.max(0, cursor.line - Math.floor(maxLines / 2)), lines.length - maxLines);
  return { lines: lines.slice(first, first + maxLines), cursor: { ...cursor, line: cursor.line - first } };
}

function menuLines({ choices, chosen }: Completion & { readonly chosen: number }, width: number): readonly Line[] {
  const first = Math.min(Math.max(0, chosen - MENU_ROWS + 1), Math.max(0, choices.length - MENU_ROWS));
  const some = choices.slice(first, first + MENU_ROWS);
  const names = Math.min(Math.max(...some.map(({ text }) => columnsOf(text))), Math.floor(width / 2));
  const lines = some.map(({ text, help = '' }, index): Line => {
    const name = oneLine(text, names);
    const space = ' '.repeat(Math.max(0, names - columnsOf(name)));
    const isChosen = first + index === chosen;
    return clipLine(
      [
        span(`  ${name}${space}`, ...(isChosen ? (['inverse'] as const) : [])),
        span(`  ${oneLine(help, width)}`, 'dim'),
      ],
      width,
    );
  });
  const more = choices.length - some.length;
  return more > 0 ? [...lines, lineOf(`  and ${more} more`, 'dim')] : lines;
}

function sharedStart(texts: readonly string[]): string {
  let [shared = ''] = texts;
  for (const text of texts) while (!text.startsWith(shared)) shared = shared.slice(0, -1);
  return shared;
}
