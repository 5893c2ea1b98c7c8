import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadSkillDefinitions } from '@treadle/tools/packages';
import { expect, it } from 'vitest';

it('loads the first 1,000 of 10,000 packages, and says so', async () => {
  const root = mkdtempSync(join(tmpdir(), 'treadle-packages-'));
  try {
    for (let index = 0; index < 10_000; index++) {
      mkdirSync(join(root, `p${index}`));
      writeFileSync(join(root, `p${index}`, 'skill.toml'), '');
    }
    const { packages, problems } = await loadSkillDefinitions(root);
    expect(packages).toHaveLength(1_000);
    const first = join(root, 'p1899');
    expect(problems).toEqual([`Only 1000 of 10000 packages are loaded: ${first} and those after it are left out.`]);
  } finally {
    rmSync(root, { recursive: true });
  }
});
