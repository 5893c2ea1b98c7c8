import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadSkillDefinitions, type LoadOptions } from './load.ts';
import { filterToolsByCapabilities, generateToolSchemas, toolDefinitionToLlm } from './packaged-tool.ts';

let root: string;
beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-packages-')));
});
afterEach(() => rmSync(root, { recursive: true }));

/** Writes a package with one program, `bin/x`. */
function writePackage(name: string, text: string): string {
  const folder = join(root, 'skills', name);
  mkdirSync(join(folder, 'bin'), { recursive: true });
  writeFileSync(join(folder, 'skill.toml'), text);
  writeFileSync(join(folder, 'bin', 'x'), '#!/bin/sh\n', { mode: 0o755 });
  return folder;
}

function toolText(name: string, more = 'binary = "bin/x"'): string {
  return `[[tools]]\nname = "${name}"\ndescription = "About ${name}"\n${more}\n`;
}

/** What was loaded: names and problems, without the folder of the test. */
async function load(options: LoadOptions = {}): Promise<{ names: string[]; problems: string[] }> {
  const { tools, problems } = await loadSkillDefinitions(join(root, 'skills'), options);
  return { names: tools.map(({ name }) => name), problems: problems.map((one) => one.replaceAll(root, '')) };
}

it('names a file that is nested too deeply, and loads the others', async () => {
  writePackage('keys', `a${'.a'.repeat(20_000)} = 1\n`);
  writePackage('parameters', `${toolText('x')}[tools.parameters.properties.p${'.properties.p'.repeat(4_000)}]\n`);
  writePackage('plain', toolText('plain'));
  expect(await load()).toEqual({
    names: ['plain'],
    problems: [
      '/skills/keys/skill.toml: cannot be read: it is nested too deeply.',
      expect.stringMatching(/^\/skills\/parameters\/skill\.toml.* nested too deeply\.$/),
    ],
  });
});

describe('packages', () => {
  it('are the folders with a skill.toml, or the folder itself', async () => {
    const folder = writePackage('a', `[skill]\nname = "first"\nversion = "1.0.0"\n${toolText('one')}`);
    mkdirSync(join(root, 'skills', 'only-knowledge'));
    writeFileSync(join(root, 'skills', 'notes.txt'), '');
    const loaded = await loadSkillDefinitions(join(root, 'skills'));
    const own = { name: 'first', version: '1.0.0', description: '', folder };
    expect(loaded).toMatchObject({
      packages: [own],
      problems: [],
      tools: [{ name: 'one', version: '1.0.0', program: join(folder, 'bin', 'x'), package: own }],
    });
    expect(await loadSkillDefinitions(folder)).toEqual(loaded);
    expect(await loadSkillDefinitions(join(root, 'nothing'))).toEqual({ tools: [], packages: [], problems: [] });
  });

  it('that cannot be used leave the others working, and say why', async () => {
    writePackage('bad', `${toolText('bad')}timeout_ms = "long"\n`);
    writePackage('good', toolText('good'));
    truncateSync(join(writePackage('huge', ''), 'skill.toml'), 100 * 1024 * 1024);
    writeFileSync(join(writePackage('latin', ''), 'skill.toml'), Buffer.from([0xe4, 0x0a]));
    const linked = writePackage('linked', '');
    rmSync(join(linked, 'skill.toml'));
    symlinkSync('/etc/passwd', join(linked, 'skill.toml'));
    mkdirSync(join(root, 'skills', 'folder', 'skill.toml'), { recursive: true });
    const { names, problems } = await load();
    expect(names).toEqual(['good']);
    expect(problems).toEqual([
      '/skills/bad/skill.toml:5: tools[0].timeout_ms must be a whole number from 1 to 300000, but is a string.',
      '/skills/folder/skill.toml: cannot be read: it is not a file.',
      '/skills/huge/skill.toml: cannot be read: it has more than 262144 bytes.',
      expect.stringMatching(/^\/skills\/latin\/skill.toml: cannot be read: .*encoded data/),
      expect.stringMatching(/^\/skills\/linked\/skill.toml: cannot be read: ELOOP/),
    ]);
  });

  it('are not loaded if they are not trusted', async () => {
    writePackage('a', toolText('one'));
    writePackage('b', toolText('two'));
    const whyUntrusted = (folder: string): string | undefined => (folder.endsWith('/a') ? 'It is new.' : undefined);
    expect(await load({ whyUntrusted })).toEqual({ names: ['two'], problems: ['/skills/a/skill.toml: It is new.'] });
  });
});

describe('a program', () => {
  it('may not be outside of its package, by ".." or by a link', async () => {
    writeFileSync(join(root, 'evil'), '#!/bin/sh\n', { mode: 0o755 });
    const folder = writePackage(
      'a',
      toolText('up', 'binary = "../../evil"') +
        toolText('link', 'binary = "bin/link"') +
        toolText('inner', 'binary = "bin/inner"') +
        toolText('folders', 'binary = "linked/x"') +
        toolText('verified', 'binary = "bin/x"\nverify = "bin/link"') +
        toolText('self', 'binary = "."'),
    );
    symlinkSync(join(root, 'evil'), join(folder, 'bin', 'link'));
    symlinkSync('x', join(folder, 'bin', 'inner'));
    symlinkSync(root, join(folder, 'linked'));
    writeFileSync(join(root, 'x'), '', { mode: 0o755 });
    const outside = (name: string, file: string, real: string): string =>
      `${name} is not offered, because "${file}" is ${real}, which is outside of the package and not allowed.`;
    expect(await load()).toEqual({
      names: ['inner'],
      problems: [
        `/skills/a/skill.toml:1: ${outside('up', '../../evil', '/evil')}`,
        `/skills/a/skill.toml:5: ${outside('link', 'bin/link', '/evil')}`,
        `/skills/a/skill.toml:13: ${outside('folders', 'linked/x', '/x')}`,
        `/skills/a/skill.toml:17: ${outside('verified', 'bin/link', '/evil')}`,
        `/skills/a/skill.toml:22: ${outside('self', '.', '/skills/a')}`,
      ],
    });
  });

  it('may be outside if its real path is allowed', async () => {
    writeFileSync(join(root, 'jq-1.7'), '#!/bin/sh\n', { mode: 0o755 });
    symlinkSync('jq-1.7', join(root, 'jq'));
    writePackage('a', toolText('jq', `binary = "${join(root, 'jq')}"`));
    expect((await load()).names).toEqual([]);
    expect((await load({ allowed: [join(root, 'other')] })).names).toEqual([]);
    expect((await load({ allowed: [join(root, 'jq')] })).names).toEqual(['jq']);
  });

  it('is the one for the platform', async () => {
    writePackage(
      'a',
      toolText('any', 'binary = "bin/no"\nplatforms.linux = "bin/x"') +
        toolText('arm', 'platforms.linux-aarch64 = "bin/x"\nplatforms.macos = "bin/x"') +
        toolText('gone', 'binary = "bin/no"'),
    );
    writeFileSync(join(root, 'skills', 'a', 'bin', 'no'), '');
    const gone =
      '/skills/a/skill.toml:11: gone is not offered, because "bin/no" is not executable: chmod +x /skills/a/bin/no.';
    const arm =
      '/skills/a/skill.toml:6: arm is not offered, because it has no binary for linux-x64: only for linux-aarch64, macos.';
    expect(await load({ platform: 'linux-x64' })).toEqual({ names: ['any'], problems: [arm, gone] });
    expect(await load({ platform: 'linux-arm64' })).toEqual({ names: ['any', 'arm'], problems: [gone] });
    expect((await load({ platform: 'darwin-x64' })).names).toEqual(['arm']);
  });
});

describe('names', () => {
  it('tell versions apart: the newest has the plain name', async () => {
    writePackage('old', `${toolText('jq')}version = "1.6.0"\n`);
    writePackage('older', `${toolText('jq')}version = "1.5"\n`);
    writePackage('new', `${toolText('jq')}version = "2.0.0"\n`);
    writePackage('next', `${toolText('jq')}version = "2.0.0-beta"\n`);
    writePackage('same', `${toolText('jq')}version = "2.0.0"\n`);
    const { tools, problems } = await loadSkillDefinitions(join(root, 'skills'));
    expect(tools.map(({ name, version }) => [name, version])).toEqual([
      ['jq', '2.0.0'],
      ['jq_v2', '2.0.0-beta'],
      ['jq_v1', '1.6.0'],
      ['jq_v1_5', '1.5'],
    ]);
    expect(problems).toEqual([`${root}/skills/same: jq 2.0.0 is also in ${root}/skills/new, which is used.`]);
  });

  it('of built-in tools are not replaced', async () => {
    writePackage('a', toolText('read') + toolText('bash') + toolText('own'));
    expect(await load({ taken: ['read', 'bash'] })).toEqual({
      names: ['own'],
      problems: ['/skills/a: the built-in tools are used instead of those of the package: read, bash.'],
    });
  });
});

it('offers a tool only if all its permissions are held, and keeps the extension out of what the model gets', async () => {
  writePackage('a', `${toolText('one')}permissions = ["shell", "network"]\n${toolText('two')}sandboxing = "none"\n`);
  const { tools } = await loadSkillDefinitions(join(root, 'skills'));
  expect(filterToolsByCapabilities(tools, ['shell']).map(({ name }) => name)).toEqual(['two']);
  const parameters = { type: 'object', properties: {}, additionalProperties: false };
  expect(toolDefinitionToLlm(tools[0]!)).toEqual({ name: 'one', description: 'About one', parameters });
  expect(generateToolSchemas(tools, ['shell', 'network', 'git'])).toEqual([
    {
      ...toolDefinitionToLlm(tools[0]!),
      evoclaw: {
        binary: 'bin/x',
        timeout_ms: 30_000,
        sandbox: true,
        permissions: ['shell', 'network'],
        version: '0.0.0',
        skill: 'a',
      },
    },
    {
      ...toolDefinitionToLlm(tools[1]!),
      evoclaw: { binary: 'bin/x', timeout_ms: 30_000, sandbox: false, permissions: [], version: '0.0.0', skill: 'a' },
    },
  ]);
});
