import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { buildPrompt } from '@treadle/core/named-agents';
import { folderAgents } from '@treadle/tools/agents';
import { msOf } from './times.ts';

const AGENTS = 1_000;
const ROUNDS = 5;

/** Loading the definitions of agents, beside reading their files only. */
export async function measureAgents(folder: string): Promise<void> {
  const root = path.join(folder, 'agents');
  mkdirSync(root);
  const write = (i: number, description: string): void => {
    const front = [
      `name: agent-${i}`,
      `description: ${description}`,
      'inputs:\n  path: { type: string, required: true, description: Where to look }',
      'outputs:\n  answer: { type: string, required: true }',
      'tools: [read, grep, "Bash(git log:*)"]',
      'governance:\n  paths: { read: ["src/**"] }',
      'constraints: { max_iterations: 10 }',
    ];
    writeFileSync(
      path.join(root, `agent-${i}.md`),
      `---\n${front.join('\n')}\n---\n${'Do it step by step.\n'.repeat(50)}`,
    );
  };
  for (let i = 0; i < AGENTS; i++) write(i, 'Does the work.');
  const agents = await folderAgents({ folders: [root] });
  const files = (): unknown => readdirSync(root).map((name) => readFileSync(path.join(root, name)));
  const rows: readonly (readonly [string, () => unknown])[] = [
    [`${AGENTS} files of agents, read only`, files],
    [`${AGENTS} agents, loaded`, () => folderAgents({ folders: [root] })],
    ['the same again, with nothing changed', () => agents.reload()],
    [
      'the same again, with one changed',
      () => {
        write(7, `Does the work ${Math.random()}.`);
        return agents.reload();
      },
    ],
    [`${AGENTS} prompts`, () => agents.list().map((agent) => buildPrompt(agent))],
  ];
  for (const [name, measured] of rows) {
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round++) times.push(await msOf(async () => measured()));
    console.log(`${name}: ${Math.min(...times).toFixed(0)} ms`);
  }
}
