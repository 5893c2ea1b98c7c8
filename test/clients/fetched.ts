import { execFile } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** Programs that use the server. They take hundreds of megabytes, so they are not dependencies. */
const CLIENTS = {
  'claude-code': { package: '@anthropic-ai/claude-code@2.1.197', binary: '@anthropic-ai/claude-code-*/claude{,.exe}' },
  codex: { package: '@openai/codex@0.166.0', binary: '@openai/codex-*/vendor/*/bin/codex{,.exe}' },
} as const;

const FOLDER = fileURLToPath(new URL('../../.cache/clients/', import.meta.url));

/**
 * The path of the binary of a client, which is fetched from the registry into `.cache/clients` once. Undefined if that is not
 * possible, or if there is none for this machine.
 */
export async function fetchedClient(name: keyof typeof CLIENTS): Promise<string | undefined> {
  const { package: wanted, binary } = CLIENTS[name];
  const folder = path.join(FOLDER, name);
  const marker = path.join(folder, 'fetched.txt');
  mkdirSync(folder, { recursive: true });
  if (!globSync(marker).some((file) => readFileSync(file, 'utf8') === wanted)) {
    const args = ['install', '--prefix', folder, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund', wanted];
    try {
      await promisify(execFile)('npm', args, { shell: process.platform === 'win32', timeout: FETCH_MS });
    } catch {
      return undefined;
    }
    writeFileSync(marker, wanted);
  }
  return globSync(path.join(folder, 'node_modules', binary))[0];
}

const FETCH_MS = 300_000;
