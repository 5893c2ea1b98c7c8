import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { newClient, oldClient } from '../mcp/official-clients.ts';
import { useServeFixture, type ServeCommand } from './serve-command.ts';

const fixture = useServeFixture();

const POLL = { interval: 5, timeout: 30_000 };

let home: string;
beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'treadle-home-'));
  vi.stubEnv('HOME', home);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(home, { recursive: true });
});

async function writeSkill(folder: string, front: string, text = 'Do it.'): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, 'SKILL.md'), `---\n${front}\n---\n${text}\n`);
}

const own = (name: string): string => path.join(home, '.treadle/skills', name);

describe.each([
  ['SDK 2', newClient],
  ['SDK 1', oldClient],
])('a client of %s over HTTP', (_, open) => {
  test('gets skills as prompts and resources', async () => {
    await writeSkill(own('review'), 'description: Reviews\nallowed-tools: Read', 'Read, then report.');
    await writeSkill(own('own'), 'description: d\ninvocation_mode: model', 'Own.');
    await writeSkill(own('mine'), 'description: d\ninvocation_mode: user', 'Mine.');
    await writeSkill(own('off'), 'description: d\nstatus: disabled', 'Off.');
    await fixture.configure('');
    const server = await fixture.serve();
    await using client = await open(server);
    expect(await client.prompts()).toEqual(['mine', 'review']);
    expect(await client.prompt('review')).toMatch(/- Allowed tools: read\n\nRead, then report\.$/);
    const { resources } = await client.resources();
    expect(resources.map(({ uri }) => uri)).toEqual(['mine', 'own', 'review'].map((one) => `treadle://skills/${one}`));
    expect(await client.read('treadle://skills/own')).toContain('Own.');
    await expect(client.prompt('own')).rejects.toThrow('own');
    await expect(client.read('treadle://skills/off')).rejects.toThrow('off');
    await expect(client.read('treadle://skills/../../secret')).rejects.toThrow('secret');
  });
});

describe('skills are reloaded', () => {
  const names = async (server: ServeCommand): Promise<readonly string[]> => {
    const { skills } = JSON.parse((await server.get('/v1/server')).text) as {
      skills: { name: string; description: string }[];
    };
    return skills.map(({ name, description }) => `${name}: ${description}`);
  };

  test('when one is added, changed, replaced and removed, for requests and MCP clients', async () => {
    await fixture.configure('[server]\ndefault_tools = ["skill"]', { text: ['ok'] });
    const server = await fixture.serve();
    await using before = await newClient(server);
    expect(await before.prompts()).toEqual([]);
    // The folder of the user does not exist until then.
    await writeSkill(own('review'), 'description: Reviews');
    await server.logged!('"skills":1');
    expect(await names(server)).toEqual(['review: Reviews']);
    expect((await server.respond({ input: 'hi' })).status).toBe(200);
    await using client = await newClient(server);
    expect(await client.prompts()).toEqual(['review']);

    await writeSkill(own('review'), 'description: Reviews code\nstatus: experimental');
    await expect.poll(() => names(server), POLL).toEqual(['review: Reviews code']);
    await rm(own('review'), { recursive: true });
    await server.logged!('"skills":0');
    // Another folder of the same name.
    await writeSkill(own('review'), 'description: Another');
    await expect.poll(() => names(server), POLL).toEqual(['review: Another']);
    await writeSkill(own('review'), 'description: Once more');
    await expect.poll(() => names(server), POLL).toEqual(['review: Once more']);
    await rm(own('review'), { recursive: true });
    await expect.poll(() => names(server), POLL).toEqual([]);
    expect(await client.prompts()).toEqual([]);
  });

  test('and those of a project are not used any more after a change that nobody has trusted', async () => {
    await mkdir(path.join(fixture.play.folder, '.git'));
    const folder = path.join(fixture.play.folder, '.agents/skills/deploy');
    await writeSkill(folder, 'description: Deploys');
    await fixture.configure('');
    const server = await fixture.serve('--trust-skills');
    expect(await names(server)).toEqual(['deploy: Deploys']);
    await writeSkill(folder, 'description: Deploys everything');
    await server.logged!('1 skill of the project are not trusted, and not used: deploy.');
    expect(await names(server)).toEqual([]);
  });
});
