import { openEditor } from '../screen/editor.ts';
import { clipLine, span, type Line } from '../screen/spans.ts';
import { exactLine } from '../terminal/printable.ts';
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
      const most = Math.max(1, rows - 4);
      const first = Math.min(Math.max(0, chosen - most + 1), Math.max(0, choices.length - most));
      const list = choices.slice(first, first + most).map((choice, index): Line => {
        const at = first + index;
        const text = `${at + 1} ${exactLine(choice)}`;
        return clipLine(at === chosen ? [span('❯ ', 'cyan'), span(text, 'bold')] : [span(`  ${text}`)], width);
      });
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
