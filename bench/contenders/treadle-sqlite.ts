import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ToolEffect } from '@treadle/core';
import { openaiChat } from '@treadle/models';
import { sqliteStore } from '@treadle/store';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

export const contender: Contender = withSqlite('pure');

/** `effect`: that of the tool. Each call of one that is not pure waits for the disk. */
export function withSqlite(effect: ToolEffect): Contender {
  const folder = mkdtempSync(join(tmpdir(), 'treadle-bench-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const journal = sqliteStore(join(folder, 'runs.db'));
  return treadle((task) => ({ model: openaiChat({ ...endpoint(task) }), journal }), effect);
}
