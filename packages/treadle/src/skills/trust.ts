import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

/*
 * Which projects the user has trusted, by the fingerprint of their skills: a change has to be trusted again. The file is in the
 * home folder, and not in the project, which could bring it. Policies deny agents its folder.
 */

function trustFile(): string {
  return join(homedir(), '.treadle', 'trusted-skills.json');
}

async function readTrusted(): Promise<Readonly<Record<string, unknown>>> {
  try {
    const value: unknown = JSON.parse(await readFile(trustFile(), 'utf8'));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    // Without the file, nothing is trusted.
    return {};
  }
}

export async function isTrusted(project: string, fingerprint: string): Promise<boolean> {
  const trusted = await readTrusted();
  return Object.hasOwn(trusted, project) && trusted[project] === fingerprint;
}

export async function rememberTrust(project: string, fingerprint: string): Promise<void> {
  const file = trustFile();
  const text = `${JSON.stringify({ ...(await readTrusted()), [project]: fingerprint }, null, 2)}\n`;
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const temporary = `${file}.${process.pid}`;
  await writeFile(temporary, text, { mode: 0o600 });
  await rename(temporary, file);
}
