import { openEditor } from '../screen/editor.ts';
import { clipLine, span, wrapLine, type Line } from '../screen/spans.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';
import type { QuestionRequest } from '../run/drive-run.ts';
import { keyLine } from './decision-panel.ts';
import { editorLines, type Panel } from './prompt-panel.ts';

/**
 * Answers the question of a tool: one of its choices by the arrow keys or its number, a text, or JSON for a schema. The question
 * itself is in the lines above.
 */
export function questionPanel(options: {
  readonly question: QuestionRequest['question'];
  readonly answer: (value: unknown) => void;
  readonly onKey: (name: string) => void;
  readonly refresh: () => void;
}): Panel {
  const { question, answer, onKey, refresh } = options;
  const { choices, schema } = question;
  const editor = openEditor();
  let chosen = 0;
  let problem: string | undefined;
  const submit = (): void => {
    const text = editor.whole().trim();
    if (text === '') return;
    if (!schema) return answer(text);
    try {
      answer(JSON.parse(text));
    } catch {
      problem = 'This is not JSON.';
    }
  };
  const pressChoice = (name: string, count: number): void => {
    if (name === 'up' || name === 'shift-tab') chosen = (chosen + count - 1) % count;
    else if (name === 'down' || name === 'tab') chosen = (chosen + 1) % count;
    else if (name === 'enter') answer(choices![chosen]);
    else if (/^[1-9]$/.test(name) && Number(name) <= count) chosen = Number(name) - 1;
    else onKey(name);
  };
  return {
    press(key) {
      if (choices) {
        if (key.type !== 'paste') pressChoice(key.type === 'key' ? key.name : key.text, choices.length);
      } else if (key.type === 'text') editor.insert(key.text);
      else if (key.type === 'paste') editor.paste(key.text);
      else if (key.name === 'enter') submit();
      else if (!editor.press(key.name)) onKey(key.name);
      refresh();
    },
    lines({ columns, rows }) {
      const width = columns - 1;
      if (!choices) {
        const { lines, cursor } = editorLines(
          editor,
          width,
          Math.max(1, rows - 4),
          schema ? 'JSON: ' : 'Your answer: ',
        );
        return { lines: problem === undefined ? lines : [...lines, [span(problem, 'red')]], ...(cursor && { cursor }) };
      }
      const list = choiceLines(
        choices.map((choice, index) => `${index + 1} ${exactLine(choice)}`),
        chosen,
        { width, most: Math.max(1, rows - 4) },
      );
      const keys = keyLine(
        [
          { key: '↑↓', does: 'choose' },
          { key: 'Enter', does: 'answers' },
        ],
        width,
      );
      return { lines: [...list, ...keys] };
    },
  };
}

/** Chooses one of several texts with the arrow keys. Letters narrow the list. */
export function choicePanel(options: {
  readonly title: string;
  readonly choices: readonly string[];
  /** The choice to begin with; default: 0. */
  readonly first?: number;
  readonly choose: (index: number) => void;
  readonly cancel: () => void;
}): Panel {
  const { title, choices, choose, cancel } = options;
  let query = '';
  let chosen = options.first ?? 0;
  const shown = (): readonly number[] =>
    choices.flatMap((choice, index) => (choice.toLowerCase().includes(query.toLowerCase()) ? [index] : []));
  const search = (text: string): void => {
    query = text;
    chosen = 0;
  };
  return {
    press(key) {
      const found = shown();
      const taken = found[chosen];
      if (key.type === 'paste') return;
      if (key.type === 'text') search(query + key.text);
      else if (key.name === 'backspace') search(query.slice(0, -1));
      else if (key.name === 'up') chosen = (chosen + found.length - 1) % Math.max(1, found.length);
      else if (key.name === 'down') chosen = (chosen + 1) % Math.max(1, found.length);
      else if (key.name === 'enter' && taken !== undefined) choose(taken);
      else if (key.name === 'escape' || key.name === 'ctrl-c' || key.name === 'ctrl-d') cancel();
    },
    lines({ columns, rows }) {
      const width = columns - 1;
      const texts = shown().map((index) => oneLine(choices[index]!, width));
      const list = choiceLines(texts, chosen, { width, most: Math.max(1, rows - 6) });
      return {
        lines: [
          ...wrapLine([span(query === '' ? title : `search: ${query}`, 'bold')], width),
          ...(list.length > 0 ? list : [[span('  no match', 'dim')]]),
          ...keyLine(
            [
              { key: '↑↓', does: 'choose' },
              { key: 'Enter', does: 'takes it' },
              { key: 'Esc', does: 'back' },
            ],
            width,
          ),
        ],
      };
    },
  };
}

/** Lines of which one is chosen. Of many those around it. */
function choiceLines(
  texts: readonly string[],
  chosen: number,
  { width, most }: { readonly width: number; readonly most: number },
): readonly Line[] {
  const first = Math.min(Math.max(0, chosen - most + 1), Math.max(0, texts.length - most));
  return texts.slice(first, first + most).map((text, index): Line => {
    return clipLine(first + index === chosen ? [span('❯ ', 'cyan'), span(text, 'bold')] : [span(`  ${text}`)], width);
  });
}
