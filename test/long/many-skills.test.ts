import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runLoop } from '@treadle/core';
import { MAX_LISTED_CHARS, skillsSection } from '@treadle/core/skills';
import { scriptedModel } from '@treadle/core/testing';
import { loadSkills, MAX_KEPT_BYTES, MAX_SKILLS, skillTool } from '@treadle/tools/skills';
import { afterEach, beforeEach, expect, it } from 'vitest';

let root: string;
beforeEach(() => void (root = mkdtempSync(join(tmpdir(), 'treadle-skills-'))));
afterEach(() => rmSync(root, { recursive: true }));

const nameOf = (index: number): string => `skill-${String(index).padStart(5, '0')}`;

function writeSkill(index: number, text = 'Do it.'): void {
  mkdirSync(join(root, nameOf(index)));
  const front = `description: Does the work of kind ${index}${index === 9_000 ? ' with zebras' : ''}`;
  writeFileSync(join(root, nameOf(index), 'SKILL.md'), `---\n${front}\n---\n${text}\n`);
}

it('loads 10,000 skills, lists some, finds the others, and says which are beyond that', async () => {
  for (let index = 0; index < MAX_SKILLS + 5; index++) writeSkill(index);
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1);
  const { skills, problems } = await loadSkills([{ path: root, from: 'user' }]);
  clearInterval(timer);
  expect(skills).toHaveLength(10_000);
  // The process does other things meanwhile.
  expect(ticks).toBeGreaterThan(100);
  const left =
    '5 of its 10005 folders are left out, in the order of names from "skill-10000" on: only 10000 are looked at.';
  expect(problems).toEqual([{ file: root, message: left }]);
  const section = skillsSection(skills);
  expect(section.length).toBeLessThan(MAX_LISTED_CHARS + 1_000);
  expect(section).toMatch(/There are \d+ more skills/);
  const search = { skill_name: 'zebra', action: 'search' };
  const model = scriptedModel([{ calls: [{ name: 'skill', arguments: search }] }, 'done']);
  const { messages } = await runLoop({ model, tools: [skillTool({ skills })], input: 'go' });
  expect(JSON.stringify(messages)).toContain('- skill-09000: Does the work of kind 9000 with zebras');
});

it('keeps a limited part of large skills in memory, and says which are left out', async () => {
  const text = 'x'.repeat(99_000);
  for (let index = 0; index < 600; index++) writeSkill(index, text);
  const { skills, problems } = await loadSkills([{ path: root, from: 'user' }]);
  const chars = skills.reduce((sum, skill) => sum + skill.text.length, 0);
  expect(chars).toBeGreaterThan(MAX_KEPT_BYTES * 0.95);
  expect(chars).toBeLessThan(MAX_KEPT_BYTES + 16 * 100_000);
  const first = JSON.stringify(nameOf(skills.length));
  const all = `${600 - skills.length} of its 600 folders`;
  const why = `all skills together may have ${MAX_KEPT_BYTES} bytes`;
  expect(problems).toEqual([
    { file: root, message: `${all} are left out, in the order of names from ${first} on: ${why}.` },
  ]);
});
