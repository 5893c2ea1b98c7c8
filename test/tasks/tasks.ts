import { CODE_TASKS } from './code-tasks.ts';
import { GIT_TASKS } from './git-tasks.ts';
import { TEXT_TASKS } from './text-tasks.ts';
import type { Task } from './task.ts';

export const TASKS: readonly Task[] = [...CODE_TASKS, ...GIT_TASKS, ...TEXT_TASKS];
