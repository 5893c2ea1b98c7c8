import type { ModelRequest, ToolSpec } from '@treadle/core';

/** The tools that may be called; the same list if it is all of them. */
export function allowedOf({ tools, allowedTools }: Pick<ModelRequest, 'tools' | 'allowedTools'>): readonly ToolSpec[] {
  return allowedTools === undefined ? tools : tools.filter(({ name }) => allowedTools.includes(name));
}
