import type { Item } from '@treadle/core';
import { clipLine, span, type Line } from '../screen/spans.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';

export interface ShownTodo {
  readonly task: string;
  readonly status: string;
}

const MARKS: Readonly<Record<string, string>> = { pending: '☐', in_progress: '▶', completed: '☑', cancelled: '☒' };
const MAX_LINES = 8;

/** The todos after an item; undefined: it does not change them. */
export function todosIn(item: Item): readonly ShownTodo[] | undefined {
  if (item.type !== 'fact') return undefined;
  const { event } = item;
  if (event.type === 'run-started') return todosOf(event.memory?.['todos']);
  const memory = event.type === 'tool-settled' && event.result.type === 'result' ? event.result.memory : undefined;
  return memory && Object.hasOwn(memory, 'todos') ? todosOf(memory['todos']) : undefined;
}

function todosOf(value: unknown): readonly ShownTodo[] {
  const { todos } = (value ?? {}) as { readonly todos?: unknown };
  if (!Array.isArray(todos)) return [];
  return todos.flatMap((todo: Partial<ShownTodo> | null) =>
    typeof todo?.task === 'string' && typeof todo.status === 'string' ? [{ task: todo.task, status: todo.status }] : [],
  );
}

/** The todos while some are open, around the first open one. */
export function todoLines(todos: readonly ShownTodo[], width: number): readonly Line[] {
  const open = todos.findIndex(({ status }) => status === 'pending' || status === 'in_progress');
  if (open < 0) return [];
  const first = Math.max(0, Math.min(open - 2, todos.length - MAX_LINES));
  return todos.slice(first, first + MAX_LINES).map(({ task, status }) => {
    const text = span(
      oneLine(exactLine(task), width),
      ...(status === 'in_progress' ? (['bold'] as const) : (['dim'] as const)),
    );
    return clipLine(
      [
        span(`  ${MARKS[status] ?? '☐'} `, ...(status === 'in_progress' ? (['cyan'] as const) : (['dim'] as const))),
        text,
      ],
      width,
    );
  });
}
