import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { skillsSection } from '@treadle/core/skills';
import { loadSkills } from '@treadle/tools/skills';

const SKILLS = 500;
const ROUNDS = 5;

/** Loading skills, beside reading their files only. */
export async function measureSkills(folder: string): Promise<void> {
  const root = path.join(folder, 'agent-skills');
  for (let i = 0; i < SKILLS; i++) {
    const at = path.join(root, `skill-${i}`);
    mkdirSync(path.join(at, 'scripts'), { recursive: true });
    const front = `name: skill-${i}\ndescription: Does the work of kind ${i}.\nallowed-tools: Read Bash(git:*)`;
    writeFileSync(path.join(at, 'SKILL.md'), `---\n${front}\n---\n${'A line of the skill.\n'.repeat(200)}`);
    writeFileSync(path.join(at, 'scripts/run.sh'), 'echo done\n');
  }
  const rows: readonly (readonly [string, () => unknown])[] = [
    [
      `${SKILLS} files SKILL.md, read only`,
      () => readdirSync(root).map((name) => readFileSync(path.join(root, name, 'SKILL.md'))),
    ],
    [`${SKILLS} skills of the user, loaded`, () => loadSkills([{ path: root, from: 'user' }])],
    [`${SKILLS} skills of a project, with a fingerprint`, () => loadSkills([{ path: root, from: 'project' }])],
  ];
  for (const [name, measured] of rows) {
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const start = performance.now();
      await measured();
      times.push(performance.now() - start);
    }
    console.log(`${name}: ${Math.min(...times).toFixed(0)} ms`);
  }
  const { skills } = await loadSkills([{ path: root, from: 'user' }]);
  const start = performance.now();
  const { length } = skillsSection(skills);
  console.log(`their lines for the instructions: ${length} characters in ${(performance.now() - start).toFixed(1)} ms`);
}
