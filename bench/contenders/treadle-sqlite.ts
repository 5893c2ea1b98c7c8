import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openaiChat } from '@treadle/models';
import { sqliteStore } from '@treadle/store';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

const folder = mkdtempSync(join(tmpdir(), 'treadle-bench-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const journal = sqliteStore(join(folder, 'runs.db'));

export const contender: Contender = treadle((task) => ({ model: openaiChat({ ...endpoint(task) }), journal }));
