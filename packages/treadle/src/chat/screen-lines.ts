import type { LiveLines, ScreenSize } from '../screen/screen.ts';
import { clipLine, lineOf, span, type Line } from '../screen/spans.ts';
import { seconds, spinner } from './run-view.ts';
import { activePanel, isDrafting, type ScreenState } from './screen-state.ts';
import { todoLines } from './todo-lines.ts';

/** What is below the scrollback: what the run does, the status line, and the prompt or what is asked. */
export function liveLines(state: ScreenState, size: ScreenSize): LiveLines {
  const { run } = state;
  const columns = size.columns - 1;
  const bottom = bottomLines(state, size);
  const status = statusLine(state, columns);
  const plan = run ? todoLines(state.todos, columns) : [];
  // A terminal that becomes narrower wraps what is there. It has to have room for that, or it moves it into the scrollback.
  const room = Math.max(1, Math.floor((size.rows - 2 - bottom.lines.length - status.length - plan.length) / 2));
  const shown = (run?.view.live(columns) ?? []).slice(-room);
  const above = [...shown, ...(shown.length > 0 || !run ? [[]] : []), ...plan, ...status];
  return {
    lines: [...above, ...bottom.lines],
    ...(bottom.cursor && { cursor: { ...bottom.cursor, line: bottom.cursor.line + above.length } }),
  };
}

function bottomLines(state: ScreenState, size: ScreenSize): LiveLines {
  const { hint, panel } = state;
  const shown = activePanel(state).lines(size);
  const notes = [
    ...(hint === '' ? [] : [hint]),
    ...(panel && isDrafting(state) ? ['A decision waits: finish your text, or press Esc to put it aside.'] : []),
  ];
  return {
    ...shown,
    lines: [...shown.lines, ...notes.map((note) => clipLine(lineOf(note, 'dim'), size.columns - 1))],
  };
}

function statusLine(
  { run, panel, asked, isClosed, usage, options, now }: ScreenState,
  columns: number,
): readonly Line[] {
  const facts = options.status?.({ usage }) ?? '';
  if (!run) {
    // A command of the chat takes its time.
    const busy = asked || panel || isClosed ? [] : ['working'];
    const text = [...busy, ...(facts === '' ? [] : [facts])].join(' · ');
    return text === '' ? [] : [clipLine(lineOf(text, 'dim'), columns)];
  }
  const elapsed = seconds(now() - run.since);
  const what = panel ? 'waiting for you' : run.interrupt.signal.aborted ? 'stopping' : run.view.activity();
  const rest = [elapsed, ...(facts === '' ? [] : [facts]), 'Esc stops'].join(' · ');
  return [clipLine([span(`${spinner(now())} `, 'cyan'), span(what), span(` · ${rest}`, 'dim')], columns)];
}
