import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sqliteStore } from '@treadle/store';
import { afterAll } from 'vitest';
import { journalContract } from './contract/journal.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-journal-'));
afterAll(() => rmSync(folder, { recursive: true }));

let stores = 0;
journalContract('SQLite, in a file', () => sqliteStore(path.join(folder, `${stores++}.db`)));
journalContract('SQLite, in memory', () => sqliteStore(':memory:'));
