import { tool, type Tool, type ToolContext } from '@treadle/core';
import { count, listing } from '../files/listing.ts';
import { TIMEOUTS } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';

/* The todos of a run are in its memory, so they survive a compaction and a restart. */

const MAX_TODOS = 100;
const MAX_TASK_CHARS = 300;
const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const;
const PRIORITIES = ['high', 'medium', 'low'] as const;
/** The key of the run's memory. */
const TODOS = 'todos';

interface Todo {
  readonly id: number;
  readonly task: string;
  readonly priority: (typeof PRIORITIES)[number];
  readonly status: (typeof STATUSES)[number];
}

interface TodoList {
  /** The id of the next todo. Ids are not used again. */
  readonly nextId: number;
  readonly todos: readonly Todo[];
}

const STATUS = { type: 'string', enum: STATUSES } as const;
const PRIORITY = { type: 'string', enum: PRIORITIES } as const;

export function todoWriteTool(): Tool {
  return tool({
    name: 'todowrite',
    description:
      'Add a todo to the list of this run, or change one. Use it for work of several steps: add each step, set it to ' +
      'in_progress when you start it and to completed when it is done. With task alone it adds a todo and returns its id. ' +
      'With id it changes the status, priority or task of that todo. Do not use it for work of a single step.',
    input: {
      type: 'object',
      properties: {
        task: {
          type: 'string',
          minLength: 1,
          maxLength: MAX_TASK_CHARS,
          description: 'What has to be done, in a line',
        },
        priority: { ...PRIORITY, description: 'Default for a new todo: medium' },
        id: { type: 'integer', minimum: 1, description: 'The todo to change; leave it out to add one' },
        status: { ...STATUS, description: 'Default for a new todo: pending' },
      },
      additionalProperties: false,
    },
    effect: 'pure',
    touches: () => [],
    remembers: [TODOS],
    unnarrowed: true,
    timeoutMs: TIMEOUTS.other.defaultMs,
    execute(input, { memory }) {
      const list = readTodos(memory);
      const change = changeOf(input);
      const written = change.id === undefined ? withTodoAdded(list, change) : withTodoChanged(list, change.id, change);
      memory![TODOS] = written.list;
      const open = written.list.todos.filter(isOpen).length;
      const done = written.list.todos.length - open;
      return `${written.what}: ${todoLine(written.todo)}\n[${open} open, ${done} completed or cancelled]`;
    },
  });
}

export function todoReadTool(): Tool {
  return tool({
    name: 'todoread',
    description:
      'List the todos of this run, all or those with a status or a priority. Use it to find out what is left to do. ' +
      'Returns a line per todo: id, status, priority, task. Add and change todos with todowrite.',
    input: {
      type: 'object',
      properties: {
        status: { ...STATUS, description: 'Only todos with this status' },
        priority: { ...PRIORITY, description: 'Only todos with this priority' },
      },
      additionalProperties: false,
    },
    effect: 'pure',
    touches: () => [],
    remembers: [TODOS],
    unnarrowed: true,
    timeoutMs: TIMEOUTS.other.defaultMs,
    execute({ status, priority }, { memory }) {
      const { todos } = readTodos(memory);
      const matching = todos.filter(
        (todo) => (status ?? todo.status) === todo.status && (priority ?? todo.priority) === todo.priority,
      );
      const shown = listing(MAX_TODOS);
      for (const todo of matching) if (!shown.add(todoLine(todo))) break;
      if (todos.length === 0) return shown.text(['there are no todos; add one with todowrite']);
      if (matching.length === 0) return shown.text([`none of the ${count(todos.length, 'todo')} matches`]);
      if (shown.length === matching.length) return shown.text([]);
      return shown.text([`only ${shown.length} of ${matching.length} are shown: ask for a status or a priority`]);
    },
  });
}

type TodoChange = Partial<Todo>;

function changeOf({ task, ...rest }: Record<string, unknown>): TodoChange {
  if (task === undefined && rest['id'] === undefined) {
    throw new ToolError('Give task to add a todo, or id to change one. todoread lists them.', 'invalid_params');
  }
  if (task === undefined) return rest;
  const text = String(task)
    .replace(/[\p{Cc}\s]+/gu, ' ')
    .trim();
  if (text === '') throw new ToolError('The task is empty. Say what has to be done.', 'invalid_params');
  return { ...rest, task: text };
}

interface Written {
  readonly what: string;
  readonly todo: Todo;
  readonly list: TodoList;
}

function withTodoAdded({ nextId, todos }: TodoList, change: TodoChange): Written {
  const same = todos.find((todo) => todo.task === change.task && isOpen(todo));
  if (same) return { ...withTodoChanged({ nextId, todos }, same.id, change), what: 'This todo exists already' };
  const room = todos.length < MAX_TODOS ? todos : withoutOldestDone(todos);
  const todo: Todo = { id: nextId, priority: 'medium', status: 'pending', task: '', ...change };
  return { what: 'Added', todo, list: { nextId: nextId + 1, todos: [...room, todo] } };
}

function withoutOldestDone(todos: readonly Todo[]): readonly Todo[] {
  const oldest = todos.find((todo) => !isOpen(todo));
  if (oldest) return todos.filter((todo) => todo !== oldest);
  throw new ToolError(
    `There are ${MAX_TODOS} open todos, and there cannot be more. Complete or cancel some with todowrite, by id and status.`,
    'execution_failed',
  );
}

function withTodoChanged({ nextId, todos }: TodoList, id: number, change: TodoChange): Written {
  const found = todos.find((todo) => todo.id === id);
  if (!found) {
    const ids = todos.map((todo) => todo.id).join(', ') || 'none';
    throw new ToolError(`There is no todo ${id}. Ids: ${ids}. Leave out id to add a todo.`, 'not_found');
  }
  const todo = { ...found, ...change, id };
  return { what: 'Changed', todo, list: { nextId, todos: todos.map((one) => (one === found ? todo : one)) } };
}

function isOpen({ status }: Todo): boolean {
  return status === 'pending' || status === 'in_progress';
}

function todoLine({ id, status, priority, task }: Todo): string {
  return `${id} [${status}] (${priority}) ${task}`;
}

function readTodos(memory: ToolContext['memory']): TodoList {
  if (!memory) throw new ToolError('Todos are in the memory of a run, so only a run can call this tool.');
  const list = memory[TODOS] ?? { nextId: 1, todos: [] };
  if (isTodoList(list)) return list;
  throw new ToolError(`The memory of this run has something else under the key "${TODOS}". Continue without a list.`);
}

function isTodoList(value: unknown): value is TodoList {
  const { nextId, todos } = value as Partial<TodoList>;
  return Number.isSafeInteger(nextId) && Array.isArray(todos) && todos.every((todo) => typeof todo?.task === 'string');
}
