import { openEditor } from '../screen/editor.ts';
import type { Key } from '../screen/keys.ts';
import type { ScreenSize } from '../screen/screen.ts';
import { span, wrapLine, type Line } from '../screen/spans.ts';
import type { ApprovalRequest, Decision } from '../run/drive-run.ts';
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

/**
 * Takes the decision about a call with one key. What the call would do is in the lines above. A pasted text decides nothing,
 * and neither does a key without a meaning.
 */
export function decisionPanel(options: {
  readonly request: ApprovalRequest;
  readonly decide: (decision: Decision) => void;
  readonly explain?: (() => void) | undefined;
  readonly onKey: (name: string) => void;
  readonly refresh: () => void;
}): Panel {
  const { request, decide, explain, onKey, refresh } = options;
  /** Set while the user writes why not. */
  let reason: ReturnType<typeof openEditor> | undefined;
  const keys: readonly KeyHelp[] = [
    { key: 'y', does: 'yes' },
    { key: 'n', does: 'no' },
    // The rule may ask each time.
    ...(request.eachTime ? [] : [{ key: 'a', does: 'always in this conversation' }]),
    ...(explain ? [{ key: '?', does: 'why it asks' }] : []),
  ];
  const pressKey = (name: string): void => {
    if (name === 'y') decide({ approved: true });
    else if (name === 'a' && !request.eachTime) decide({ approved: true, forRun: true });
    else if (name === 'n') reason = openEditor();
    else if (name === '?') explain?.();
    else onKey(name);
  };
  const pressInReason = (key: Key, editor: ReturnType<typeof openEditor>): void => {
    if (key.type === 'text') editor.insert(key.text);
    else if (key.type === 'paste') editor.paste(key.text);
    else if (key.name === 'enter') {
      const text = editor.whole().trim();
      decide({ approved: false, reason: text === '' ? 'The user said no.' : `The user said no: ${text}` });
    } else if (key.name === 'escape') reason = undefined;
    else if (!editor.press(key.name)) onKey(key.name);
  };
  return {
    press(key) {
      if (reason) pressInReason(key, reason);
      else if (key.type === 'text') pressKey([...key.text][0]!.toLowerCase());
      else if (key.type === 'key') pressKey(key.name);
      refresh();
    },
    lines({ columns, rows }: ScreenSize) {
      const width = columns - 1;
      if (!reason) return { lines: [[span('Allow it?', 'bold', 'yellow')], ...keyLine(keys, width)] };
      const hint = keyLine(
        [
          { key: 'Enter', does: 'says no, with or without a reason' },
          { key: 'Esc', does: 'back' },
        ],
        width,
      );
      const { lines, cursor } = editorLines(reason, width, Math.max(1, rows - 4), 'Why not? ');
      return { lines: [...lines, ...hint], ...(cursor && { cursor }) };
    },
  };
}
