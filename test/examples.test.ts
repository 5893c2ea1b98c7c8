import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const folder = path.join(import.meta.dirname, '..', 'examples');

test.each(readdirSync(folder))('examples/%s runs', (file) => {
  const options = { encoding: 'utf8' } as const;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['--conditions=treadle-source', path.join(folder, file)],
    options,
  );
  expect(status, stderr).toBe(0);
  expect(stdout.trim()).not.toBe('');
});

test('docs/typed-agents.md contains the example unchanged', () => {
  const page = readFileSync(path.join(folder, '..', 'docs', 'typed-agents.md'), 'utf8');
  const example = readFileSync(path.join(folder, 'csv-agent.ts'), 'utf8');
  expect(page).toContain(`\`\`\`ts\n${example}\`\`\``);
});
