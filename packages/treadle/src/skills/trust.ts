import { appendFile, mkdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

/*
 * Which projects the user has trusted, by the fingerprint of their skills: a change has to be trusted again. The file is in the
 * home folder, and not in the project, which could bring it. Policies deny agents its folder.
 *
 * An answer is a line that is appended, so that processes which remember answers at the same time lose none. Of a project, the
 * last line counts.
 */

function trustFile(): string {
  return join(homedir(), '.treadle', 'trusted-skills.jsonl');
}

interface TrustedProject {
  readonly project: string;
  readonly fingerprint: string;
}

export async function isTrusted(project: string, fingerprint: string): Promise<boolean> {
  // Without the file, nothing is trusted.
  const text = await readFile(trustFile(), 'utf8').catch(() => '');
  const last = text
    .split('\n')
    .flatMap(trustedProject)
    .findLast((one) => one.project === project);
  return last?.fingerprint === fingerprint;
}

/** A line that was not written whole is no answer. */
function trustedProject(line: string): readonly TrustedProject[] {
  try {
    const value = JSON.parse(line) as Partial<TrustedProject> | null;
    return typeof value?.project === 'string' ? [value as TrustedProject] : [];
  } catch {
    return [];
  }
}

export async function rememberTrust(project: string, fingerprint: string): Promise<void> {
  const file = trustFile();
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  // The line end before it ends a line that was not written whole.
  const line = JSON.stringify({ project, fingerprint } satisfies TrustedProject);
  await appendFile(file, `\n${line}\n`, { mode: 0o600 });
}
